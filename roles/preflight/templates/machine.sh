# shellcheck shell=sh
# shellcheck disable=SC2016 # dpkg-query expands the fields
ask machine uname -m
ask kernel uname -r
ask maker dmidecode -s system-manufacturer
ask board dmidecode -s baseboard-manufacturer
ask product dmidecode -s system-product-name
ask bios dmidecode -s bios-version
ask driver timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader
ask engine dpkg-query -W -f '${db:Status-Status} ${Package} ${Version} ' docker-ce docker.io
ask containerd dpkg-query -W -f '${db:Status-Status} ${Package} ${Version} ' containerd.io containerd
ask toolkit dpkg-query -W -f '${db:Status-Status} ${Package} ${Version} ' nvidia-container-toolkit
f=/etc/nvidia-container-runtime/config.toml
[ ! -e "$f" ] || ask mode sed -n 's/^[[:space:]]*mode[[:space:]]*=[[:space:]]*"\([^"]*\)".*/\1/p' "$f"
ask target systemctl get-default
# Over D-Bus from the daemon of this machine: no network, no history, no report (fwupd 1.9 and 2.0, fu-util.c).
ask devices timeout 20 fwupdmgr get-devices --json --no-unreported-check --no-metadata-check --no-remote-check
first=yes
for d in @INTERFACES@; do
[ -e "$d" ] || continue
say "interface 0 ${d##*/}"
[ ! -e "$d/@ECN@" ] || say "ecn 0 ${d##*/}"
[ -z "$first" ] || ask firmware ethtool -i "${d##*/}"
first=
done
o=$(timeout 20 lspci -D -vv -d 15b3: 2>/dev/null)
say "links $?"
while read -r l; do
case $l in LnkSta:* | [0-9a-f][0-9a-f][0-9a-f][0-9a-f]*:[0-9a-f][0-9a-f]:*) say "pci 0 $l" ;; esac
done <<END
$o
END
[ ! -e @HOTPLUG@ ] || say "hotplug 0"
for k in /etc/ssh/ssh_host_*_key.pub; do
[ -e "$k" ] || continue
l=
read -r l < "$k" || [ -n "$l" ] || exit 9
say "hostkey 0 $l"
done
while read -r l; do
[ -z "$l" ] || say "owner 0 $l"
done <<END
$(grep -hsm 1 -- '@OWNER@' @FILES@)
$(sed -n 's/^@LOGIN@ \([^ ]*\) .*/login \1/p' @SUDOERS@ 2>/dev/null)
$(sed -n 's/^    User /login /p' @CLIENT@ 2>/dev/null)
END
