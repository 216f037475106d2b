#!/bin/sh
@HEADER@
# Makes the interface "$1" treat loss as its switch does.
set -eu
at=/sys/class/net/$1

has_class() {
    for class in "$at"/device/infiniband/*/tc/1/traffic_class; do [ ! -e "$class" ] || return 0; done
    return 1
}

mapped() {
    case " $(dcb -N app show dev "$1" dscp-prio) " in *" $2 "*) ;; *) return 1 ;; esac
}

roce() {
    tries=@SECONDS@
    until has_class; do
        [ "$tries" -gt 0 ] || { echo "$1: its RDMA device has no traffic class to set" >&2; exit 1; }
        tries=$((tries - 1))
        sleep 1
    done
    ethtool -A "$1" autoneg off rx off tx off
    dcb app replace dev "$1" dscp-prio @MAPS@
    # `dcb app replace` ends with 0 whatever became of it.
    for map in @MAPS@; do
        mapped "$1" "$map" || { echo "$1: DSCP:priority $map is not taken" >&2; exit 1; }
    done
    echo 1 > "$at/@NOTICE_POINT@"
    echo 1 > "$at/@REACTION_POINT@"
    echo @CNP_DSCP@ > "$at/@CNP@"
    echo @TRAFFIC_CLASS@ > "$class"
    dcb pfc set dev "$1" prio-pfc all:off @PRIORITY@:on
}

pause() {
    dcb pfc set dev "$1" prio-pfc all:off
    ethtool -A "$1" autoneg off rx on tx on
    for map in @MAPS@; do
        ! mapped "$1" "$map" || dcb app del dev "$1" dscp-prio "$map"
    done
    if has_class && grep -qx 'Global tclass=@TRAFFIC_CLASS@' "$class"; then echo -1 > "$class"; fi
}

case $1 in
@CASES@*) pause "$1" ;; # as a driver starts
esac
