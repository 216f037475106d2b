# shellcheck shell=sh
# The text of `sh -c`.
# [begin|CURSOR]: prints the KiB of memory that are available. `begin`: also the cursor of the newest line of the kernel's
# log. CURSOR: also the lines after it that the memory guard, the kernel's own and the driver of the GPU write about a
# fault. By the order of the journal and not by time, since the clock of a node may be set back meanwhile.
set -eu
journal() { journalctl --dmesg --quiet --no-pager "$@"; }
first_cursor() { journal --output=export "$@" | sed -n '1{s/^__CURSOR=//p;q;}'; }
sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo
case ${1-} in
'') exit 0 ;;
begin)
    cursor=$(first_cursor --lines=1)
    [ -n "$cursor" ] || { echo "the kernel's log has no line, or cannot be read" >&2; exit 1; }
    printf '%s\n' "$cursor"
    exit 0
    ;;
esac
# With the name of who wrote a line: systemd takes that of the memory guard out of the message.
lines=$(journal --output=short-unix --no-hostname --after-cursor="$1")
# Asked after the lines: journalctl takes the nearest line for one that is gone, and the first one of another boot.
[ "$(first_cursor --cursor="$1")" = "$1" ] || { echo "the kernel's log has lost the line at which the trial began" >&2; exit 1; }
printf '%s\n' "$lines" | sed -E 's/^[0-9.]+ (kernel: )?//' | grep -aE 'NVRM: Xid|NV_ERR_NO_MEMORY|sparkrack-memory-guard: |[Oo]ut of memory: Killed' || [ $? -eq 1 ]
