#!/bin/sh
# host_needs.sh NODES: what this machine lacks for a virtual rack of so many nodes, a line each, and exit 1, or 2 where no
# virtual rack can ever run; or nothing.
# Set-up asks before it installs anything, and `sparkrack lab up` before it builds anything, so this needs only a shell
# and the essential packages. Where it does not run as root it names what root will lack, too.
set -u
nodes=$1
cache=${SPARKRACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkrack}
node_mb=700   # memory that a node takes while it is in use; idle it is about 300
build_mb=3000 # disk for the source and objects of the kernel and the image, at the peak of the build
container="a container needs --device /dev/net/tun --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --privileged"
code=0
lacks() {
    echo "$1"
    code=1
}

if [ "$(uname -s)" != Linux ]; then
    lacks "the virtual rack runs on Linux only, and this is $(uname -s)"
    exit 2
fi
if [ "$(uname -m)" != x86_64 ]; then
    lacks "user-mode Linux, the kernel of the virtual nodes, exists for x86-64 machines only, and this is $(uname -m)"
    exit 2
fi

bounding=$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)
if [ $((0x$bounding >> 12 & 1)) -eq 0 ] || [ $((0x$bounding >> 21 & 1)) -eq 0 ]; then
    lacks "root lacks the capability SYS_ADMIN or NET_ADMIN here: $container"
elif [ "$(id -u)" -eq 0 ] && ! said=$(unshare --net --mount --propagation unchanged true 2>&1); then
    lacks "this machine refuses namespaces (${said#unshare: }): $container"
fi

if [ ! -c /dev/net/tun ]; then
    lacks "/dev/net/tun is missing: $container; elsewhere \`modprobe tun\` makes it"
elif [ "$(id -u)" -eq 0 ] && ! said=$( (: <>/dev/net/tun) 2>&1); then
    lacks "/dev/net/tun does not open (${said##*: }): $container; elsewhere \`modprobe tun\` makes it"
fi

available=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
if [ "$available" -lt $((nodes * node_mb)) ]; then
    lacks "$nodes nodes need about $((nodes * node_mb)) MB of memory, this machine has $available MB to give; use fewer nodes"
fi

if ! ls -d "$cache"/lab/image-*[!w] >/dev/null 2>&1; then
    folder=$cache
    while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(($(df -Pk "$folder" | sed -n '2s/ \{1,\}/ /gp' | cut -d ' ' -f 4) / 1024))
    if [ "$free" -lt "$build_mb" ]; then
        lacks "kernel and image need $build_mb MB of disk while they are built, $folder has $free MB; SPARKRACK_CACHE names another folder"
    fi
fi
exit $code
