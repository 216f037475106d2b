# shellcheck shell=sh
# What a node has for sending the messages of its kernel, in lines: a subject, a name, a value.
target=/sys/kernel/config/netconsole/sparkrack
dynamic=unknown
if [ -d /sys/kernel/config/netconsole ]; then
    dynamic=yes
elif [ -r "/boot/config-$(uname -r)" ]; then
    if grep -qx 'CONFIG_NETCONSOLE_DYNAMIC=y' "/boot/config-$(uname -r)"; then dynamic=yes; else dynamic=no; fi
elif [ -r /proc/config.gz ]; then
    if gzip -dc /proc/config.gz | grep -qx 'CONFIG_NETCONSOLE_DYNAMIC=y'; then dynamic=yes; else dynamic=no; fi
fi
printf 'netconsole dynamic %s\n' "$dynamic"
# Each address with its interface and the driver of that.
printf 'netconsole interfaces'
ip -o -4 address show | while read -r _ name _ address _; do
    driver=none
    if [ -e "/sys/class/net/$name/device/driver" ]; then
        driver=$(readlink "/sys/class/net/$name/device/driver")
        driver=${driver##*/}
    fi
    printf ' %s=%s=%s' "${address%/*}" "$name" "$driver"
done
printf '\n'
if [ -d "$target" ]; then
    printf 'netconsole target %s %s %s %s\n' "$(cat "$target/enabled")" "$(cat "$target/local_ip")" \
        "$(cat "$target/remote_ip")" "$(cat "$target/extended")"
else
    printf 'netconsole target absent\n'
fi
# Not `read`: dash reads byte by byte, and the second read of a file below /proc/sys is empty.
printk=$(cat /proc/sys/kernel/printk)
printf 'netconsole level %s\n' "${printk%%[!0-9]*}"
