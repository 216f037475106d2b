# shellcheck shell=sh
new=$(mktemp /etc/.machine-id.XXXXXX); trap 'rm -f "$new"' EXIT
tr -d - < /proc/sys/kernel/random/uuid > "$new"
chown 0:0 "$new"; chmod 444 "$new"; sync "$new"
echo '*** System restart required ***' > /run/reboot-required
grep -qx machine-id /run/reboot-required.pkgs 2>/dev/null || echo machine-id >> /run/reboot-required.pkgs
if [ -f /var/lib/dbus/machine-id ] && [ ! -L /var/lib/dbus/machine-id ]; then
    ln -sfT /etc/machine-id /var/lib/dbus/machine-id
fi
mv -fT "$new" /etc/machine-id
# journald writes into the folder of the machine-id that it started with, and journalctl reads that of the file: until
# journald is restarted, the journal of this boot seems empty. A restart that fails leaves that to the reboot.
systemctl try-restart systemd-journald.service >&2 || true
cat /etc/machine-id
