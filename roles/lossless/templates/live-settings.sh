# shellcheck shell=sh
ask() {
q=$1; shift; o=$("$@" 2>&1); s=$?
printf '%s %s %s %s\n' "$i" "$q" "$s" "$(printf '%s' "$o" | tr '\n\t' '  ')"
}
look() { if [ -e "$2" ]; then ask "$1" cat "$2"; else echo "$i $1 absent"; fi; }
for d in @INTERFACES@; do
[ -e "$d" ] || continue; i=${d##*/}
ask pause ethtool -a "$i"; ask pfc dcb pfc show dev "$i" prio-pfc; ask dscp dcb -N app show dev "$i" dscp-prio
for f in @FILES@; do look "$f" "$d/$f"; done
for c in "$d"/device/infiniband/*/tc/1/traffic_class; do look class "$c"; done
done
