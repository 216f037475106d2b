# shellcheck shell=sh
# shellcheck disable=SC2010 # ls prints where a descriptor points to; the name that is looked for is constant
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C
set -f
holder() {
for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
inode=$(stat -c %i "$lock" 2>/dev/null) || continue
while read -r _ _ _ _ pid where _; do
case "$where" in *:"$inode") ;; *) continue;; esac
ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF -- "-> $lock" || continue
printf '%s (pid %s)' "$(cat "/proc/$pid/comm" 2>/dev/null)" "$pid"
return 0
done < /proc/locks
done
return 1
}
waited=0
while who=$(holder); do
[ "$waited" -lt @SECONDS@ ] || { echo "dpkg has been locked for @SECONDS@ s by $who; nothing was changed" >&2; exit 1; }
sleep 1
waited=$((waited + 1))
done
