# shellcheck shell=sh
# The units of the packages as systemd has them, then the marks of files that no program has read yet, then the packages
# that are installed as a whole (one whose installation was interrupted has its unit already), and whether there is a
# python3.
systemctl show --property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload \
    prometheus-node-exporter.service prometheus.service prometheus-alertmanager.service
printf '\nmarks:'
for n in prometheus-node-exporter prometheus prometheus-alertmanager node-metrics switch-reader; do
    if [ -e "/run/sparkrack/watch-$n.pending" ]; then printf ' watch-%s' "$n"; fi
done
s=$(dpkg-query --show --showformat='${Package}:${db:Status-Status}\n' \
    prometheus-node-exporter prometheus prometheus-alertmanager 2> /dev/null) || [ $? -eq 1 ] || exit 9
printf '\ninstalled:'
printf '%s\n' "$s" | while IFS=: read -r n s; do
    if [ "$s" = installed ]; then printf ' %s' "$n"; fi
done
python=no
if command -v python3 > /dev/null; then python=yes; fi
printf '\npython: %s\n' "$python"
