"""Units of inference engines that a change of a switch would cut off, as the kernels of their nodes show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from core.model.errors import printable_line
from core.routeros.change_plan import ChangePlan
from core.routeros.diff import RowChange
from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET
from core.routeros.reading import SwitchReading
from serving import running_engines as running_units
from serving.options import served_units
from switch.cages import lanes_of
from switch.link_witness import Ask
from switch.port_changes import cabled

if TYPE_CHECKING:
    from core.model import Rack, Switch

UNASKED = "no_nodes"
"""Host data of a run that is to ask no node."""
_UNKNOWN = "; make it answer in this run, or pass --no-nodes, which asks no node"


def cabled_nodes(rack: Rack, switch: Switch) -> tuple[str, ...]:
    """Return the nodes with a leg of the switch, all of which a restart of it takes down."""
    return tuple(dict.fromkeys(port.node for _, port in rack.cabling.legs(switch.name)))


def nodes_behind(rack: Rack, switch: Switch, reading: SwitchReading, todo: ChangePlan) -> tuple[str, ...]:
    """Return the nodes that a plan cuts off from the switch: a changed lane restarts its cage, a changed l2mtu all
    ports; and a leg whose row of the bridge is changed or removed, or whose bridge is, passes nothing for a while.
    """
    if any(_all_legs(change) for change in todo.changes):
        return cabled_nodes(rack, switch)
    lanes = {change.row for change in todo.changes if change.menu is ETHERNET}
    ports = {change.row for change in todo.changes if change.menu is BRIDGE_PORT and not change.adds}
    return tuple(
        dict.fromkeys(
            link.port.node
            for link in cabled(rack, switch, reading)
            if lanes & set(lanes_of(link.leg.cage)) or link.name in ports
        )
    )


def _all_legs(change: RowChange) -> bool:
    names = {field.name for field in change.fields}
    return (change.menu is ETHERNET and "l2mtu" in names) or (
        change.menu is BRIDGE and not change.adds and (change.removes or "disabled" in names)
    )


def unit_refusals(rack: Rack, switch: Switch, nodes: Iterable[str], ask: Ask) -> list[str]:
    """Return why these nodes must not be cut off, a line for each unit that runs there and uses the fabric, and
    for each node of which that is unknown. A rack without units asks no node.
    """
    if not served_units(rack):
        return []
    behind: dict[str, list[str]] = {}
    unknown = []
    for node in nodes:
        output = ask(node, running_units.PROBE)
        if output is None:
            unknown.append(f"whether a unit runs on {node} is unknown: it does not answer{_UNKNOWN}")
            continue
        try:
            names = running_units.parse_running_units(output)
        except ValueError as fault:
            unknown.append(f"whether a unit runs on {node} is unknown: {printable_line(str(fault))}{_UNKNOWN}")
            continue
        for name in names:
            behind.setdefault(name, []).append(node)
    running = [
        line
        for name, where in behind.items()
        for line in running_units.link_unit_blockers(
            rack, [name], f"{', '.join(where)} would be cut off from {switch.name}"
        )
    ]
    return [*running, *unknown]
