#!/bin/sh
# serve-gateway close|open UNIT: `close` has the gateway answer 503 to new requests of a unit, `open` ends that.
# Requests that run go on.
set -eu
umask 022 # the processes of nginx that look for the file are not root
units=/etc/sparkrack/gateway/units
run=/run/sparkrack-gateway
fail() { echo "serve-gateway: $1" >&2; exit "$2"; }
[ $# -eq 2 ] || fail "expected close or open, and the name of a unit" 2
verb=$1 unit=$2
[ -r "$units" ] || fail "this node has no gateway; run sparkrack apply" 2
known=no
while read -r name _; do
    [ "$name" != "$unit" ] || known=yes
done < "$units"
[ $known = yes ] || fail "the gateway has no unit with this name: $unit" 2
case $verb in
    close)
        mkdir -p "$run"
        : > "$run/$unit.closed"
        ;;
    open) rm -f "$run/$unit.closed" ;;
    *) fail "expected close or open, not $verb" 2 ;;
esac
