# shellcheck shell=sh
# The text of `sh -c`.
# [SINCE]: prints the time of this node in seconds since 1970, the KiB of memory that are available, and since SINCE the
# lines of the kernel's log that the memory guard, the kernel's own and the driver of the GPU write about a fault.
set -eu
date +%s
sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo
[ -n "${1-}" ] || exit 0
lines=$(journalctl --dmesg --quiet --no-pager --output=cat --since "@$1")
printf '%s\n' "$lines" | grep -aE 'NVRM: Xid|NV_ERR_NO_MEMORY|sparkrack-memory-guard: |[Oo]ut of memory: Killed' || [ $? -eq 1 ]
