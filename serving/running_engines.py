"""Units of inference engines that run on a node, as its kernel shows them, and why a change of the node must wait.

The name of each control group has the name of its unit, so that no program of the unit is asked. Between the order to
start a unit and its first process there is no such group: its agent has a mark below /run then. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from core.model.schema import CONTAINER_SLICE, Rack
from serving.launch import UNIT_FILES, UNIT_PROGRAMS
from serving.options import served_units

FACT = "running-units"
"""Name of the question in the probes of roles. Several roles ask it; a node answers it once."""
_CGROUPS = "/sys/fs/cgroup"
MARKS = "/run/sparkrack-serve"
"""Folder of systemd with one folder for each agent that runs; NAME/wanted is there while its coordinator wants the
rank."""
PROBE = (
    f"for d in {_CGROUPS}/{CONTAINER_SLICE}/sparkrack-*.slice {_CGROUPS}/system.slice/sparkrack-serve-*.service; do "
    '[ -d "$d" ] || continue; '
    'e=$(cat "$d/cgroup.events") || { [ ! -d "$d" ] && continue; exit 9; }; '
    "case $e in *'populated 1'*) printf '%s\\n' \"${d#/sys/fs/cgroup}\";; esac; done; "
    f'for f in {MARKS}/*/wanted; do [ ! -e "$f" ] || printf \'%s\\n\' "$f"; done'
)
"""Prints the control groups of each unit that has processes: of its container, and of the service of its rank, which
runs before the container does; and the mark of each unit that is wanted, which has none of both during its gates.
Agent and coordinator, which run at rest too, are left out when it is parsed."""
_NAME = r"(?P<{}>[a-z0-9][a-z0-9_]{{0,30}})"
_UNIT = re.compile(
    rf"/{re.escape(CONTAINER_SLICE)}/sparkrack-{_NAME.format('slice')}\.slice(?:/|$)"
    rf"|/system\.slice/sparkrack-serve-{_NAME.format('service')}\.service(?:/|$)"
    rf"|^{re.escape(MARKS)}/{_NAME.format('mark')}/wanted$"
)


def unit_of_cgroup(path: str) -> str | None:
    """Return the name of the unit that a control group belongs to: to its container, or to the service of its rank.
    The same for the mark of a unit that is wanted.
    """
    found = _UNIT.search(path)
    return next(filter(None, found.groups())) if found else None


def parse_running_units(listing: str) -> tuple[str, ...]:
    """Return the names of the units that run on a node, from the output of PROBE. Raises ValueError for other lines."""
    names = dict[str, None]()
    for line in listing.splitlines():
        # A slice with another name is that of another program.
        if not line.startswith((f"/{CONTAINER_SLICE}/sparkrack-", "/system.slice/sparkrack-serve-", f"{MARKS}/")):
            raise ValueError(f"{FACT}: unexpected probe output {line[:80]!r}")
        if name := unit_of_cgroup(line):
            names[name] = None
    return tuple(names)


def nodes_of_unit(rack: Rack, name: str) -> tuple[str, ...]:
    """Return the nodes of a unit in rank order; none when rack.yaml does not declare it."""
    unit = served_units(rack).get(name)
    return unit.ranks(rack.nodes) if unit else ()


def describe_unit(rack: Rack, name: str) -> str:
    """Return a running unit as the subject of a sentence."""
    nodes = nodes_of_unit(rack, name)
    return f"unit {name} ({', '.join(nodes)})" if nodes else f"unit {name}, which {rack.source} does not declare,"


def stop_command(rack: Rack, name: str) -> str:
    """Return what stops a unit on all its nodes, as words for a sentence."""
    if nodes_of_unit(rack, name):
        return f"`sparkrack serve stop {name}`"
    return f"`{UNIT_PROGRAMS}/serve_coordinator.py {UNIT_FILES}/{name}.json down` on its head"


def unit_blockers(rack: Rack, running: Iterable[str], change: str) -> list[str]:
    """Return why a change that ends or stalls a rank must wait, a line for each running unit.

    Args:
        rack: the rack.
        running: the names of the units that run on the node.
        change: what would be done, as a clause: `docker must be restarted`.
    """
    return [f"{describe_unit(rack, name)} runs, and {change}; run {stop_command(rack, name)} first" for name in running]


def link_unit_blockers(rack: Rack, running: Iterable[str], change: str) -> list[str]:
    """The same for a change of links of the fabric, which a declared unit of one node does not use."""
    return unit_blockers(rack, [name for name in running if len(nodes_of_unit(rack, name)) != 1], change)
