# shellcheck shell=sh
# The timer that reads the switches, and its service, as systemd has them.
systemctl show --property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload \
    sparkrack-switch-reader.service sparkrack-switch-reader.timer
