# shellcheck shell=sh
# shellcheck disable=SC2034 # bandwidth-tools.sh uses apart
apart=setsid
serve() {
    look "$1" "$2" "$3"
    log=$(mktemp)
    { exec >"$log" 2>&1 </dev/null; tool "$(rdma_of "$2" "$4")" "$5"; } &
    tries=0
    until ss -Hltn "sport = :$5" | grep -q .; do
        tries=$((tries + 1))
        if [ "$tries" -gt 50 ] || ! kill -0 $! 2>/dev/null; then cat "$log" >&2; rm -f "$log"; exit 1; fi
        sleep 0.2
    done
    rm -f "$log"
}
