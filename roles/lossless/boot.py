"""The two files that bring the policy back whenever an interface appears: a script and a unit. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from roles.lossless import state
from sparkrack.fleet import lossless

SECONDS = 30
"""How long the script waits for the RDMA device, which its driver makes after the interface."""
_MAPS = " ".join(f"{dscp}:{priority}" for dscp, priority in state.PRIORITIES.items())
_NOTICE = "Written by sparkrack for the rack {rack}; a change here is overwritten."

_SCRIPT = """\
#!/bin/sh
# {notice}
# Makes the interface "$1" treat loss as its switch does.
set -eu
at=/sys/class/net/$1

has_class() {{
    for class in "$at"/device/infiniband/*/tc/1/traffic_class; do [ ! -e "$class" ] || return 0; done
    return 1
}}

mapped() {{
    case " $(dcb -N app show dev "$1" dscp-prio) " in *" $2 "*) ;; *) return 1 ;; esac
}}

roce() {{
    tries={seconds}
    until has_class; do
        [ "$tries" -gt 0 ] || {{ echo "$1: its RDMA device has no traffic class to set" >&2; exit 1; }}
        tries=$((tries - 1))
        sleep 1
    done
    ethtool -A "$1" autoneg off rx off tx off
    dcb app replace dev "$1" dscp-prio {maps}
    # `dcb app replace` ends with 0 whatever became of it.
    for map in {maps}; do
        mapped "$1" "$map" || {{ echo "$1: DSCP:priority $map is not taken" >&2; exit 1; }}
    done
    echo 1 > "$at/{notice_point}"
    echo 1 > "$at/{reaction_point}"
    echo {cnp_dscp} > "$at/{cnp}"
    echo {traffic_class} > "$class"
    dcb pfc set dev "$1" prio-pfc all:off {priority}:on
}}

pause() {{
    dcb pfc set dev "$1" prio-pfc all:off
    ethtool -A "$1" autoneg off rx on tx on
    for map in {maps}; do
        ! mapped "$1" "$map" || dcb app del dev "$1" dscp-prio "$map"
    done
    if has_class && grep -qx 'Global tclass={traffic_class}' "$class"; then echo -1 > "$class"; fi
}}

case $1 in
{cases}*) pause "$1" ;; # as a driver starts
esac
"""

_UNIT = """\
# {notice}
[Unit]
Description=Treat loss on %i as its switch does
BindsTo=sys-subsystem-net-devices-%i.device
After=sys-subsystem-net-devices-%i.device

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={script} %i

[Install]
WantedBy=sys-subsystem-net-devices-%i.device
"""


def script(rack: str, policies: Mapping[str, state.Policy]) -> bytes:
    """The script of a node in the rack of that name: what it sets follows from the interface it is given.

    Any other interface gets what a driver starts with.
    """
    return _SCRIPT.format(
        notice=_NOTICE.format(rack=rack),
        seconds=SECONDS,
        maps=_MAPS,
        notice_point=state.NOTICE,
        reaction_point=state.REACT,
        cnp=state.CNP,
        cnp_dscp=lossless.CNP_DSCP,
        traffic_class=state.TRAFFIC_CLASS,
        priority=lossless.ROCE_CLASS,
        cases="".join(f'{name}) {policy} "$1" ;;\n' for name, policy in policies.items()),
    ).encode()


def unit(rack: str) -> bytes:
    """The unit: bound to its interface, so that it runs again whenever that comes back."""
    return _UNIT.format(notice=_NOTICE.format(rack=rack), script=state.SCRIPT).encode()


def instance(name: str) -> str:
    """The unit of one interface."""
    return state.TEMPLATE.replace("@", f"@{name}")
