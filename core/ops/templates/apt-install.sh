# shellcheck shell=sh
# shellcheck disable=SC2154 # the text before it, in apt.py, sets log
# shellcheck disable=SC2254 # the second and third argument are patterns
# shellcheck disable=SC1007 # found= is empty on purpose
# shellcheck disable=SC2046 # one line for all versions
# shellcheck disable=SC2005 # one line for all versions
# shellcheck disable=SC2086 # found holds one word a package
if [ -n "$(dpkg --audit)" ]; then logged dpkg --force-confold --configure -a || cat "$log"; fi
versions() { apt-cache madison -- "$1" 2>/dev/null | while IFS='| ' read -r _ version _; do echo "$version"; done; }
pick() { for version in $(versions "$1"); do case "$version" in $2|$3) echo "$version"; return;; esac; done; }
resolve() {
found= lacking=0
while [ $# -gt 0 ]; do
version=$(pick "$1" "$2" "$3")
if [ -z "$version" ]; then lacking=1; elif [ "$3" = "*" ]; then found="$found $1"; else found="$found $1=$version"; fi
shift 3
done
}
lacks() {
while [ $# -gt 0 ]; do
[ -n "$(pick "$1" "$2" "$3")" ] || {
there=$(echo $(versions "$1" | sort -u))
echo "$1${2:+ $2} is not in the configured repositories, which have ${there:-none}" >&2; }
shift 3
done
}
updated=0
update() { updated=1; logged apt-get @OPTIONS@ -q update || fail; }
install() { logged apt-get @OPTIONS@ -q -y --no-install-recommends --no-remove @FLAGS@install -- $found; }
resolve "$@"
if [ "$lacking" = 1 ]; then update; resolve "$@"; fi
if [ "$lacking" = 1 ]; then lacks "$@"; grep -E '^[EW]:' "$log" >&2 || true; exit 1; fi
if ! install; then
if [ "$updated" = 1 ] || ! grep -q 'Failed to fetch' "$log"; then fail; fi
update
resolve "$@"
[ "$lacking" = 0 ] || { lacks "$@"; exit 1; }
install || fail
fi
