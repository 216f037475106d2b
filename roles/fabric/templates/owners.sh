# shellcheck shell=sh
# shellcheck disable=SC2043 # the placeholder is several names
m=
systemctl is-active --quiet NetworkManager 2>/dev/null && m=yes && echo manager
[ -z "$m" ] || c=$(nmcli -t -f UUID,FILENAME connection show) || exit 9
for i in @INTERFACES@; do
[ -e "/sys/class/net/$i" ] || continue
read -r n < "/sys/class/net/$i/ifindex" && read -r a < "/sys/class/net/$i/address" || exit 9
d=$(sed -n 's/^E:ID_NET_DRIVER=//p' "/run/udev/data/n$n" 2>/dev/null)
echo "device $i ${d:--} $a"
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
[ -n "$m" ] || continue
u=$(nmcli -g GENERAL.CON-UUID device show "$i" 2>/dev/null)
[ -z "$u" ] || p=$(printf '%s\n' "$c" | sed -n "s/^$u://p")
[ -z "$u" ] || [ -z "$p" ] || echo "profile $i $p"
done
for k in /etc/NetworkManager/system-connections/* /usr/lib/NetworkManager/system-connections/*; do
[ -e "$k" ] || continue
o=$(grep -HE '^[[:space:]]*interface-name[[:space:]]*=' "$k") || [ $? -eq 1 ] || exit 9
[ -z "$o" ] || echo "keyfile $o"
done
