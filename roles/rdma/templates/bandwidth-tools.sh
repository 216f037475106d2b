# shellcheck shell=sh
# shellcheck disable=SC2012 # names of RDMA devices are letters, digits and _
# shellcheck disable=SC2154 # bandwidth-client.sh and bandwidth-server.sh set apart
# shellcheck disable=SC2086 # gid is not a word or two
gid_index=@GID_INDEX@
type ib_write_bw >/dev/null 2>&1 || { echo "ib_write_bw is not there (package perftest)" >&2; exit 1; }
look() {
    echo "$1 link $(ethtool "$2" 2>/dev/null | sed -n 's/.*Speed: \([0-9]*\)Mb.*/\1/p')"
    echo "$1 lanes $(lspci -vv -s "$3" 2>/dev/null | sed -n 's/.*LnkSta:.*Width x\([0-9]*\).*/\1/p')"
}
rdma_of() {
    name=$(ls "/sys/class/net/$1/device/infiniband" 2>/dev/null | head -n 1)
    echo "${name:-$2}"
}
tool() {
    if number=$("$gid_index" "$1" 2>/dev/null); then gid="-x $number"; else gid=''; fi
    $apart timeout @LONGEST@ ib_write_bw -d "$1" $gid -p "$2" @OPTIONS@ ${3:+"$3"}
}
