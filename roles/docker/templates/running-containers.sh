# shellcheck shell=sh
# shellcheck disable=SC2015 # continue ends the list
all=$(@FIND@) || exit 9
printf '%s\n' "$all" | while IFS= read -r d; do
[ -n "$d" ] || continue
case "$(cat "$d/cgroup.events" 2>/dev/null)" in *'populated 1'*) ;; *) continue;; esac
m=$(cat "$d/memory.max" 2>/dev/null) && s=$(cat "$d/memory.swap.max" 2>/dev/null || echo -) ||
{ [ ! -e "$d" ] && continue; exit 9; }
printf '%s %s %s\n' "$d" "$m" "$s"
done
