# shellcheck shell=sh
# shellcheck disable=SC2043 # the placeholder is several names
m=
systemctl is-active --quiet NetworkManager 2>/dev/null && m=yes && echo manager
[ -z "$m" ] || c=$(nmcli -t -f UUID,FILENAME connection show) || exit 9
for i in @INTERFACES@; do
[ -e "/sys/class/net/$i" ] || continue
read -r n < "/sys/class/net/$i/ifindex" && read -r a < "/sys/class/net/$i/address" || exit 9
d=$(sed -n 's/^E:ID_NET_DRIVER=//p' "/run/udev/data/n$n" 2>/dev/null)
o=$(ip link show dev "$i") || exit 9
o=$(printf '%s\n' "$o" | awk '$1 == "altname" { printf " %s", $2 }') || exit 9
echo "device $i ${d:--} $a$o"
f=$(sed -n 's/^NETWORK_FILE=//p' "/run/systemd/netif/links/$n" 2>/dev/null)
s=
case $f in
"" | "/run/systemd/network/10-netplan-$i.network") ;;
*/10-netplan-*)
k=${f##*/10-netplan-} k=${k%.network}
s=$(grep -lsE "^[[:space:]\"']+${k}[\"']?[[:space:]]*:" /etc/netplan/*.yaml /run/netplan/*.yaml /usr/lib/netplan/*.yaml | tr '\n' ' ')
;;
esac
[ -z "$f" ] || echo "networkd $i $f${s:+ ${s% }}"
for p in /etc/systemd/network /run/systemd/network /usr/lib/systemd/network; do
for k in "$p/10-netplan-$i.network.d"/*.conf; do
[ -e "$k" ] || continue
grep -qE '^[[:space:]]*(Address|DHCP|MTUBytes|LinkLocalAddressing|Unmanaged|ActivationPolicy|VLAN|Bond|Bridge)[[:space:]]*=' "$k"
case $? in 0) echo "dropin $i $k" ;; 1) ;; *) exit 9 ;; esac
done
done
[ -n "$m" ] || continue
u=$(nmcli -g GENERAL.CON-UUID device show "$i" 2>/dev/null)
[ -z "$u" ] || p=$(printf '%s\n' "$c" | sed -n "s/^$u://p")
[ -z "$u" ] || [ -z "$p" ] || echo "profile $i $p"
done
for k in /etc/NetworkManager/system-connections/* /usr/lib/NetworkManager/system-connections/*; do
[ -e "$k" ] || continue
o=$(grep -HE '^[[:space:]]*(interface-name|mac-address)[[:space:]]*=' "$k") || [ $? -eq 1 ] || exit 9
[ -z "$o" ] || printf '%s\n' "$o" | sed 's/^/keyfile /'
done
[ -z "$m" ] || exit 0
set --
for k in /etc/systemd/network/*.network /run/systemd/network/*.network /usr/lib/systemd/network/*.network; do
[ -e "$k" ] || [ -L "$k" ] || continue
echo "match $k:"
[ ! -f "$k" ] || set -- "$@" "$k"
done
[ $# -eq 0 ] || awk 'FNR == 1 { m = 0 } /^[[:space:]]*[[]/ { m = /[[]Match]/; next }
m && /^[[:space:]]*[A-Za-z]+[[:space:]]*=/ { print "match " FILENAME ":" $0 }' "$@" || exit 9
