# shellcheck shell=sh
# The state of a node in lines: a subject, a name, a value. A file that does not exist has the value "absent".
show() {
    value=absent
    if [ -e "$3" ]; then value=$(cat "$3") || exit 9; fi
    printf '%s %s %s\n' "$1" "$2" "$value"
}
for d in /sys/class/watchdog/watchdog*; do
    [ -e "$d" ] || continue
    for f in identity state timeout min_timeout max_timeout; do show "${d##*/}" "$f" "$d/$f"; done
done
# The driver shows this parameter in no file; it logs the value when it starts (drivers/watchdog/sbsa_gwdt.c).
action=absent
if [ -d /sys/module/sbsa_gwdt ]; then
    driver='s/.*sbsa-gwdt.*: Initialized with .* action=\([0-9]*\)\..*/\1/p'
    action=$(dmesg 2> /dev/null | sed -n "$driver" | tail -n 1)
    [ -n "$action" ] || action=$(journalctl --boot --dmesg --quiet --no-pager --output=cat 2> /dev/null | sed -n "$driver" | tail -n 1)
fi
printf 'sbsa_gwdt action %s\n' "${action:-unknown}"
for f in kernel/panic kernel/panic_on_oops kernel/softlockup_panic kernel/panic_on_rcu_stall \
    kernel/max_rcu_stall_to_panic kernel/hung_task_panic vm/panic_on_oom; do
    show sysctl "$f" "/proc/sys/$f"
done
show pstore backend /sys/module/pstore/parameters/backend
show efi_pstore disabled /sys/module/efi_pstore/parameters/pstore_disable
if command -v modinfo > /dev/null; then
    printf 'efi_pstore module %s\n' "$(modinfo -F filename efi_pstore 2> /dev/null || echo absent)"
fi
id=$(cat /etc/machine-id) || exit 9
if [ -e "/var/log/journal/$id/system.journal" ]; then persistent=yes; else persistent=no; fi
printf 'journal persistent %s\n' "$persistent"
for n in journal clock evidence; do
    if [ -e "/run/sparkrack/blackbox-$n.pending" ]; then pending=yes; else pending=no; fi
    printf '%s pending %s\n' "$n" "$pending"
done
boot=$(tr -d - < /proc/sys/kernel/random/boot_id) || exit 9
if [ -e "/var/lib/sparkrack/blackbox/boots/$boot/evidence.json" ]; then evidence=yes; else evidence=no; fi
printf 'boot evidence %s\n' "$evidence"
tool=no
if command -v nvidia-smi > /dev/null; then tool=yes; fi
printf 'clock tool %s\n' "$tool"
# Only where a cap is or was set: nvidia-smi needs 30 ms, and hangs where the GPU does.
if [ "$tool" = yes ] && [ -e /etc/systemd/system/sparkrack-clock-cap.service ]; then
    answer=$(timeout 20 nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits 2>&1) || answer="failed: $answer"
    printf 'clock sm %s\n' "$(printf '%s' "$answer" | tr '\n' ' ')"
fi
