# shellcheck shell=sh
# What the kernel of a node can do, was started with, and will be started with, in lines: a subject, a name, a value.
# The shell looks into the texts itself: on a small node each program costs more than its work.
nl='
'
wanted='s/^\(CONFIG_ARM_SBSA_WATCHDOG\|CONFIG_CRASH_DUMP\|CONFIG_KEXEC_FILE\)=/\1=/p'
config=/boot/config-$(uname -r)
known=yes
if [ -r "$config" ]; then
    options=$(sed -n "$wanted" "$config") || exit 9
elif [ -r /proc/config.gz ]; then
    options=$(gzip -dc /proc/config.gz) || exit 9
    options=$(printf '%s\n' "$options" | sed -n "$wanted")
else
    known=no
fi
symbol() { # the value of an option of the running kernel
    value=unknown
    if [ "$known" = yes ]; then
        case $nl$options in
        *"$nl$2="*) value=${options##*"$2="} value=${value%%"$nl"*} ;;
        *) value=absent ;;
        esac
    fi
    printf 'config %s %s\n' "$1" "$value"
}
last() { # the last value of a parameter in a command line
    value=absent
    set -f
    for word in $3; do
        case $word in "$2="*) value=${word#*=} ;; esac
    done
    set +f
    printf '%s %s\n' "$1" "${value:-absent}"
}
symbol sbsa_gwdt CONFIG_ARM_SBSA_WATCHDOG
symbol crash_dump CONFIG_CRASH_DUMP
symbol kexec_file CONFIG_KEXEC_FILE

program=no
if command -v update-grub > /dev/null && [ -r /boot/grub/grub.cfg ]; then program=yes; fi
# A boot loader names itself in this variable of the firmware, in UTF-16.
for f in /sys/firmware/efi/efivars/LoaderInfo-*; do
    [ -e "$f" ] || continue
    case $(tr -d '\000-\037' < "$f") in *systemd-boot*) program=systemd-boot ;; esac
done
printf 'grub program %s\n' "$program"
# grub-mkconfig writes this file, copies it over the other one and removes it: it stays when one of these fails.
if [ -e /boot/grub/grub.cfg.new ]; then unfinished=yes; else unfinished=no; fi
printf 'grub unfinished %s\n' "$unfinished"
older=no
if [ "$program" = yes ] && started=$(sed -n 's/^btime //p' /proc/stat) && [ -n "$started" ]; then
    written=$(stat -c %Y /boot/grub/grub.cfg) || exit 9
    if [ "$written" -lt "$started" ]; then older=yes; fi
fi
printf 'grub older %s\n' "$older"
# The first entry is the one that is started by default; those for recovery have fewer parameters.
entry=
if [ "$program" = yes ]; then entry=$(grep -m 1 -E '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg || echo); fi
last 'grub watchdog' sbsa_gwdt.action "$entry"
last 'grub crashkernel' crashkernel "$entry"
IFS= read -r line < /proc/cmdline || :
last 'booted crashkernel' crashkernel "${line:-}"

if command -v modprobe > /dev/null; then
    options=$(modprobe --showconfig | sed -n 's/^options sbsa_gwdt //p') || exit 9
    last 'modprobe action' action "$options"
else
    printf 'modprobe action unknown\n'
fi

for f in size loaded; do
    value=absent
    if [ -e "/sys/kernel/kexec_crash_$f" ]; then value=$(cat "/sys/kernel/kexec_crash_$f") || exit 9; fi
    printf 'crash %s %s\n' "$f" "$value"
done
for p in kdump makedumpfile kexec; do
    name=$p
    [ "$p" = makedumpfile ] || name=$p-tools
    status=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2> /dev/null) || status=absent
    printf 'package %s %s\n' "$p" "${status:-absent}"
done
printf 'unit kdump %s\n' "$(systemctl is-enabled kdump-tools.service 2> /dev/null || :)"
# Absent without CONFIG_SECURITY_LOCKDOWN_LSM, or where securityfs is not mounted. The active word is in brackets.
lockdown=absent
if [ -r /sys/kernel/security/lockdown ]; then
    lockdown=$(sed -n 's/.*\[\([a-z]*\)\].*/\1/p' /sys/kernel/security/lockdown) || exit 9
fi
printf 'kernel lockdown %s\n' "$lockdown"
