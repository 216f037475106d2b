#!/bin/sh
# Has the kernel send its messages to another node by netconsole, and writes a line that proves that they arrive.
#
#     netconsole-target LOCAL REMOTE    arm the target, or correct it, and write the line
#     netconsole-target --off           remove the target
#
# LOCAL is the management address of this node, REMOTE that of the receiver. A timer runs it every 5 minutes, so another
# network card of the receiver or an interface that was renamed is noticed.
set -eu
configfs=/sys/kernel/config
target=/sys/kernel/config/netconsole/sparkrack
fail() {
    echo "netconsole-target: $1" >&2
    exit 1
}
if [ "$1" = --off ]; then
    [ -d "$target" ] || exit 0
    [ "$(cat "$target/enabled")" = 0 ] || echo 0 > "$target/enabled"
    rmdir "$target"
    exit 0
fi
local=$1 remote=$2
[ -d "$configfs/netconsole" ] || fail "netconsole is not loaded, or not dynamic (CONFIG_NETCONSOLE_DYNAMIC)"
interface=$(ip -o -4 address show to "$local" | while read -r _ name _; do echo "$name"; break; done)
[ -n "$interface" ] || fail "no interface has $local"
route=$(ip -o -4 route get "$remote" from "$local" oif "$interface") || fail "no route to $remote over $interface"
hop=$remote
case $route in *" via "*) hop=${route#* via } hop=${hop%% *} ;; esac
ping -c 1 -W 2 -I "$interface" "$hop" > /dev/null 2>&1 || true # an answer fills the neighbour table
neighbour=$(ip -4 neighbour show to "$hop" dev "$interface")
case $neighbour in *"lladdr "*) mac=${neighbour#*lladdr } mac=${mac%% *} ;; *) fail "$hop has no address in the neighbour table of $interface" ;; esac
wanted="$interface 6665 $local 6666 $remote $mac 1"
[ -d "$target" ] || mkdir "$target"
cd "$target"
actual=$(cat dev_name local_port local_ip remote_port remote_ip remote_mac extended | tr '\n' ' ')
if [ "${actual% }" != "$wanted" ] || [ "$(cat enabled)" = 0 ]; then
    [ "$(cat enabled)" = 0 ] || echo 0 > enabled
    echo "$interface" > dev_name
    echo 6665 > local_port
    echo "$local" > local_ip
    echo 6666 > remote_port
    echo "$remote" > remote_ip
    echo "$mac" > remote_mac
    echo 1 > extended
    echo 1 > enabled
    echo "netconsole-target: messages go to $remote ($mac) over $interface"
fi
# Messages of a lower priority than this level are not sent: 5 lets warnings leave.
# Not `read`: dash reads byte by byte, and the second read of a file below /proc/sys is empty.
printk=$(cat /proc/sys/kernel/printk)
level=${printk%%[!0-9]*}
[ "$level" -ge 5 ] || echo 5 > /proc/sys/kernel/printk
echo "<4>sparkrack-netconsole-mark" > /dev/kmsg
