# shellcheck shell=sh
# Put metrics, the fourth argument (gzip, base64), into the file $2 of the folder $1 of the textfile collector, as they
# were at the time $3; a file that is newer stays. Others may write in the folder: the name of the new file is a surprise.
set -eu
umask 022
cd "$1" 2> /dev/null || { echo "$1 is not there; sparkrack apply --only watch makes it" >&2; exit 1; }
new=$(mktemp .sparkrack.XXXXXXXX)
trap 'rm -f "$new"' EXIT
printf %s "$4" | base64 -d | gzip -d > "$new"
chmod 644 "$new"
# A file of the future is that of a machine whose clock was wrong.
future=no
if [ "$2" -nt "$new" ]; then future=yes; fi
touch -d "@$3" "$new"
if [ "$future" = yes ] || ! [ "$2" -nt "$new" ]; then mv -fT "$new" "$2"; fi
