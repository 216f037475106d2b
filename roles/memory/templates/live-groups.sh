# shellcheck shell=sh
# shellcheck disable=SC2086 # the names of groups, and process IDs, have no blanks
c=@CGROUPS@; [ ! -e $c/cgroup.controllers ] || echo unified
for g in @GROUPS@; do [ -d $c/$g ] || continue; n=${g##*/}; echo "$n there"
case $g in @SLICE@) q="memory.max memory.swap.max memory.current"
while read -r k v; do [ "$k" != populated ] || echo "$n populated $v"; done < $c/$g/cgroup.events || exit 9;;
*) q=memory.min;; esac
for k in $q; do [ ! -e $c/$g/$k ] || { read -r v < $c/$g/$k && echo "$n $k $v"; } || exit 9; done
case $g in */*) while read -r p; do
name=; parent=
{ while read -r k v _; do case $k in Name:) name=$v;; PPid:) parent=$v; break;; esac; done < /proc/$p/status &&
read -r a < /proc/$p/oom_score_adj; } 2>/dev/null || continue
[ "$parent" = 1 ] || continue
echo "$n process $p $a $name"
[ "$n" != @GUARD@ ] || echo "$n runs $(tr '\0' ' ' < /proc/$p/cmdline)"
done < $c/$g/cgroup.procs || exit 9;; esac; done
for w in @WANTED@; do [ ! -L "$w" ] || echo "${w##*/} enabled"; done
for d in @DROPINS@; do [ ! -e "$d" ] && [ ! -L "$d" ] || { n=${d%.d/*}; echo "${n##*/} dropin $d"; }; done
for m in @MARKS@/memory-*.pending; do [ ! -e "$m" ] || echo "${m##*/} pending"; done
