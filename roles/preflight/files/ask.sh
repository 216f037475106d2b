# shellcheck shell=sh
export LC_ALL=C
say() { printf '%s\n' "$*"; }
ask() {
q=$1; shift; o=$("$@" 2>/dev/null); s=$?; t=
while read -r l; do case $l in '#'*) ;; *) t="$t $l" ;; esac; done <<END
$o
END
say "$q $s$t"
}
