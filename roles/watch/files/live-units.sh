# shellcheck shell=sh
# The units of the watch as systemd has them, then the marks of files that no program has read yet.
systemctl show --property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload \
    prometheus-node-exporter.service prometheus.service prometheus-alertmanager.service
printf '\nmarks:'
for n in prometheus-node-exporter prometheus prometheus-alertmanager; do
    if [ -e "/run/sparkrack/watch-$n.pending" ]; then printf ' %s' "$n"; fi
done
echo
