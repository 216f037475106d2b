#!/bin/sh
# The crash kernel runs this in place of the script of kdump-tools, which writes the memory as well and has no setting
# against that: it keeps the log of the kernel that panicked, and restarts the node.
set -u
# shellcheck disable=SC1091 # the settings are a file of the node
if [ -r /etc/default/kdump-tools ]; then . /etc/default/kdump-tools; fi
folder=${KDUMP_COREDIR:-/var/crash}
stamp=$(date +%Y%m%d%H%M)
log=$folder/$stamp/dmesg.$stamp
mkdir -p "$folder/$stamp"
makedumpfile --dump-dmesg /proc/vmcore "$log" || vmcore-dmesg /proc/vmcore > "$log"
sync
# Names are times, so that the oldest come first.
all=0
for dump in "$folder"/2[0-9][0-9][0-9]*; do all=$((all + 1)); done
for dump in "$folder"/2[0-9][0-9][0-9]*; do
    [ "$all" -gt "${KDUMP_NUM_DUMPS:-3}" ] || break
    rm -rf "$dump"
    all=$((all - 1))
done
sync
reboot -f
