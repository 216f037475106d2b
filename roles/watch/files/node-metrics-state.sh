# shellcheck shell=sh
# The timer of the node's metrics as systemd has it, and whether files wait to be read.
timer=sparkrack-node-metrics.timer
printf 'active %s\n' "$(systemctl show --property=ActiveState --value "$timer")"
printf 'file %s\n' "$(systemctl show --property=UnitFileState --value "$timer")"
printf 'reload'
for n in "$timer" sparkrack-node-metrics.service; do
    printf ' %s' "$(systemctl show --property=NeedDaemonReload --value "$n")"
done
if [ -e /run/sparkrack/watch-node-metrics.pending ]; then pending=yes; else pending=no; fi
printf '\npending %s\n' "$pending"
python=no
if command -v python3 > /dev/null; then python=yes; fi
printf 'python %s\n' "$python"
