#!/bin/sh
# shellcheck disable=SC2015 # both parts are conditions
@HEADER@
# memory-gate AMOUNT [--seconds N]: gives cached memory back and waits, N seconds at most, until AMOUNT (90G, 512M) is
# available. Ends with 0 when it is, 1 when it is not in time, 2 when it was called wrong. For ExecStartPre=, scripts.
set -eu

wrong() {
    echo "memory-gate: $1; use: memory-gate AMOUNT [--seconds N], with AMOUNT like 90G or 512M" >&2
    exit 2
}

number() {
    case $1 in '' | *[!0-9]* | 0?* | ???????*) return 1 ;; esac
}

available() {
    while read -r key value _; do
        if [ "$key" = MemAvailable: ]; then echo "$value"; return; fi
    done < /proc/meminfo
    return 1
}

[ $# -gt 0 ] || wrong "no amount is given"
amount=$1 seconds=@SECONDS@
shift
case $amount in
*G) factor=1048576 ;;
*M) factor=1024 ;;
*) wrong "$amount is not an amount" ;;
esac
number "${amount%?}" || wrong "$amount is not an amount"
case $# in
0) ;;
2) [ "$1" = --seconds ] && number "$2" || wrong "$* is not understood"; seconds=$2 ;;
*) wrong "$* is not understood" ;;
esac
need=$((${amount%?} * factor))
[ -w /proc/sys/vm/drop_caches ] || { echo "memory-gate: only root can give cached memory back" >&2; exit 2; }

sync
echo 3 > /proc/sys/vm/drop_caches
[ ! -e /proc/sys/vm/compact_memory ] || echo 1 > /proc/sys/vm/compact_memory
waited=0
while has=$(available) && [ "$has" -lt "$need" ]; do
    if [ "$waited" -ge "$seconds" ]; then
        echo "memory-gate: $has KiB of memory are available after $waited s, $need KiB ($amount) are needed" >&2
        exit 1
    fi
    sleep 1
    waited=$((waited + 1))
done
[ -n "$has" ] || { echo "memory-gate: /proc/meminfo does not tell what is available" >&2; exit 1; }
echo "memory-gate: $has KiB of memory are available after $waited s, $need KiB ($amount) were needed"
