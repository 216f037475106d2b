# shellcheck shell=sh
# shellcheck disable=SC2034 # bandwidth-tools.sh uses apart
apart=''
sent() { cat "/sys/class/infiniband/$1/ports/1/counters/port_xmit_data" 2>/dev/null || true; }
measure() {
    look "$1" "$2" "$3"
    name=$(rdma_of "$2" "$4")
    before=$(sent "$name")
    output=$(tool "$name" "$5" "$6" 2>&1) && code=0 || code=$?
    echo "$1 sent $before $(sent "$name")"
    echo "$1 exit $code"
    printf '%s\n' "$output" | sed "s/^/$1 said /"
}
