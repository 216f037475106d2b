#!/bin/sh
# shellcheck disable=SC2013 # grep -l prints names of files, which have no blanks here
# shellcheck disable=SC2043 # a node may have one device
@HEADER@
# Prints NCCL_IB_GID_INDEX=N: where the fabric addresses of this node stand among the GIDs of its RDMA devices now.
# That differs between hosts and boots, so it is asked when something is started. With the name of a device: only
# its number.
set -eu

place() {
    folder=/sys/class/infiniband/$1/ports/1
    for found in $(grep -lxF "$2" "$folder"/gids/* 2>/dev/null); do
        number=${found##*/}
        if [ "$(cat "$folder/gid_attrs/types/$number" 2>/dev/null)" = "RoCE v2" ]; then
            echo "$number"
            return 0
        fi
    done
    echo "gid-index: $1 has no RoCE v2 GID for $3: is the device there, and the address on its interface?" >&2
    return 1
}

of() {
    case $1 in
@CASES@        *) echo "gid-index: no fabric address is behind $1" >&2; return 1 ;;
    esac
}

if [ $# -gt 0 ]; then
    of "$1"
    exit
fi
first='' indexes='' differ=''
for device in @DEVICES@; do
    number=$(of "$device")
    [ "${first:=$number}" = "$number" ] || differ=yes
    indexes="$indexes $device $number"
done
if [ -z "$first" ]; then
    echo "gid-index: this node has no cable" >&2
    exit 1
fi
if [ -n "$differ" ]; then
    echo "gid-index: no one index serves all devices ($indexes ): leave NCCL_IB_GID_INDEX unset, NCCL finds them" >&2
    exit 0
fi
echo "NCCL_IB_GID_INDEX=$first"
