# shellcheck shell=sh
# The timer of the node's metrics and its service as systemd has them, and whether files wait to be read.
systemctl show --property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload \
    sparkrack-node-metrics.timer sparkrack-node-metrics.service
if [ -e /run/sparkrack/watch-node-metrics.pending ]; then pending=yes; else pending=no; fi
printf '\npending %s\n' "$pending"
python=no
if command -v python3 > /dev/null; then python=yes; fi
printf 'python %s\n' "$python"
