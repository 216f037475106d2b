# shellcheck shell=sh
# Each answer has its name, its content and its status in lines, and a line with the mark after it. No file and no other
# program knows the mark, so none can print the end of its answer.
mark=$(mktemp -u XXXXXXXXXXXXXXXXXXXXXXXX)
nl='
'
f() {
if [ -e "$1" ] || [ -L "$1" ]; then
printf '%s\n' "$1"; cat < "$1" 2>/dev/null; printf '\n%d\n%s\n' "$?" "$mark"
else printf '%s\n\nabsent\n%s\n' "$1" "$mark"; fi
}
# The sizes of files, and their contents one after the other: three processes for all of them. The files of the kernel have
# no size, and what cannot be read or changes meanwhile is read by itself.
files() {
n=$#
while [ "$n" -gt 0 ]; do
case $1 in /proc/*|/sys/*) f "$1" ;; *) if [ -f "$1" ]; then set -- "$@" "$1"; else f "$1"; fi ;; esac
shift; n=$((n-1))
done
[ $# -gt 0 ] || return 0
sizes=$(stat -L -c '%s %n' -- "$@" 2>/dev/null)
printf '=files\n%s\n\n' "$sizes"; cat -- "$@" 2>/dev/null; code=$?
printf '\n%d\n%s\n' "$code" "$mark"
[ "$code" = 0 ] && [ "$sizes" = "$(stat -L -c '%s %n' -- "$@" 2>/dev/null)" ] || for p; do f "$p"; done
}
# A command has a shell of its own, without input. Its answer is complete when all that hold its output have ended.
c() {
out=$({ trap 'printf "\n%d" "$?"' EXIT; t=$2; set --; eval "$t"; } </dev/null 2>/dev/null)
printf '%s\n%s\n%s\n' "$1" "$out" "$mark"
[ "${out##*"$nl"}" = 0 ]
}
# The same for a command that prints NUL, which no variable of the shell can hold.
z() {
printf '%s\n' "$1"
{ trap 'printf "\n%d" "$?"' EXIT; t=$2; set --; eval "$t"; } </dev/null 2>/dev/null | cat
printf '\n%s\n' "$mark"
}
