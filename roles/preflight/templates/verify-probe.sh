# shellcheck shell=sh
# shellcheck disable=SC1091 # the file of a node
export LC_ALL=C
say() { printf '%s\t%s\n' "$1" "$2"; }
dmi() { cat "/sys/class/dmi/id/$1" 2>/dev/null || dmidecode -s "$2" 2>/dev/null | grep -v '^#'; }
say system "$(. /etc/os-release; echo "$ID $VERSION_ID")"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say cmdline "$(cat /proc/cmdline)"
say maker "$(dmi sys_vendor system-manufacturer)"
say board "$(dmi board_vendor baseboard-manufacturer)"
say bios "$(dmi bios_version bios-version)"
for e in /sys/firmware/efi/esrt/entries/*; do
[ ! -e "$e/fw_class" ] || say device "$(cat "$e/fw_class") $(cat "$e/fw_version")"
done
say driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)"
say engine "$(dockerd --version 2>/dev/null)"
say containerd "$(containerd --version 2>/dev/null)"
say toolkit "$(nvidia-ctk --version 2>/dev/null | head -n 1)"
say toolkit-mode "$(nvidia-ctk config --config=/etc/nvidia-container-runtime/config.toml 2>/dev/null | sed -n 's/^ *mode = //p')"
for d in /etc/systemd/system /usr/lib/systemd/system; do
[ ! -e "$d/default.target" ] || { say target "$(basename "$(readlink -f "$d/default.target")")"; break; }
done
say machine-id "$(systemd-id128 machine-id)"
for k in /etc/ssh/ssh_host_*_key.pub; do say hostkey "$(ssh-keygen -lf "$k" | cut -d' ' -f2)"; done
for p in / /var/lib/docker /var/lib/containerd; do
[ ! -d "$p" ] || say room "$p $(stat -f -c '%a %S' "$p")"
done
say swap "$(swapon --noheadings --show=NAME,SIZE)"
for k in @SYSCTLS@; do say "$k" "$(sysctl -n "$k")"; done
width='s/.*LnkSta:[[:space:]]*Speed \([^ ,]*\)[^,]*, Width \(x[0-9]*\).*/\1 \2/p'
for s in @SLOTS@; do
d=/sys/bus/pci/devices/$s
if [ -e "$d/current_link_width" ]; then say link "$s $(cat "$d/current_link_speed") x$(cat "$d/current_link_width")"
else say link "$s $(lspci -D -vv -s "$s" 2>/dev/null | sed -n "$width")"; fi
done
for i in @INTERFACES@; do [ ! -e "/sys/class/net/$i/@ECN@" ] || say ecn "$i"; done
set -- @INTERFACES@
say firmware "$(ethtool -i "$1" 2>/dev/null | sed -n 's/^firmware-version: //p')"
if systemctl is-active --quiet docker.service; then
o=$(timeout 20 docker info --format '{{json .DriverStatus}}') &&
case $o in *io.containerd.snapshotter*) say store "containerd's" ;; *) say store "docker's own" ;; esac
for i in @IMAGES@; do
say image "$i $(docker image inspect --format '{{.Id}}' "$i" 2>/dev/null || echo is not there)"
done
fi
say clock "$(date +%s.%N)"
