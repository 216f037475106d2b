# shellcheck shell=sh
# shellcheck disable=SC2010 # ls prints where a descriptor points to; the name that is looked for is constant
# shellcheck disable=SC2125 # the ? is what is printed for a name that cannot be read
ask clock date +%s.%N
r=
[ ! -e /etc/docker/daemon.json ] ||
r=$(sed -n 's/.*"data-root"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p' /etc/docker/daemon.json) || exit 9
[ -n "$r" ] || r=/var/lib/docker
set -- /
for p in "$r" /var/lib/containerd; do [ ! -d "$p" ] || set -- "$@" "$p"; done
o=$(df -k --output=avail,target -- "$@" 2>/dev/null)
s=$?
while read -r l; do case $l in Avail*) ;; *) say "room $s $l" ;; esac; done <<END
$o
END
for w in /sys/class/net/*; do
t=$(cat "$w/type" 2>/dev/null) || continue
if [ -e "$w/phy80211" ]; then k=wifi
elif [ "$t" -eq 65534 ]; then k=tunnel
else continue
fi
read -r l < "$w/flags" || exit 9
[ $((l & 1)) -ne 0 ] || continue
o=$(ip -o addr show dev "${w##*/}") || exit 9
a=
while read -r _ _ _ x _; do a="$a ${x%/*}"; done <<END
$o
END
say "$k 0 ${w##*/}$a"
done
! systemctl is-active --quiet @DESKTOP@ 2>/dev/null || say "desktop 0"
ask store timeout 20 docker info --format '{{.Driver}}'
o=$(systemctl list-units --state=active --plain --no-legend @KILLERS@ 2>/dev/null)
while read -r u _; do [ -z "$u" ] || say "killer 0 $u"; done <<END
$o
END
f=/var/lib/dpkg/lock-frontend
[ -e "$f" ] || exit 0
i=$(stat -c %i "$f") || exit 9
while read -r _ _ _ _ pid where _; do
case $where in *:"$i") ;; *) continue ;; esac
ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF -- "-> $f" || continue
n=$(cat "/proc/$pid/comm" 2>/dev/null) || n=?
say "locked 0 $n (pid $pid)"
done < /proc/locks
