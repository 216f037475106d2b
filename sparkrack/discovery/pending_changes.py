"""Changes that a run would make to the discovered machines, if the file is used as it was written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from core.hardware.gb10 import INTERFACES
from core.model import VLAN_DEVICES, Node, Rack
from core.model.errors import printable_line
from core.routeros.change_plan import ChangeBatch
from core.routeros.errors import RefusedError, UnreadableError
from roles.fabric import desired
from roles.fabric.foreign_netplan import adoption_blocker, contents, is_equivalent, renderers
from roles.fabric.interface_owners import files_of_others, owners
from sparkrack.discovery.node_facts import NodeFacts
from sparkrack.discovery.switch_facts import SwitchFacts
from switch.plan import plan

SHOWN = 4
"""Rows of a table that are listed by name; more of them are counted."""


def changes(rack: Rack, nodes: Mapping[str, NodeFacts], switches: Mapping[str, SwitchFacts]) -> tuple[str, ...]:
    """Live values of fabric and switch that differ from the rack's, by the comparison that a run makes, a line each.

    Files and units of this project, which no rack has that was configured by hand, are not values and not listed.
    """
    lines = [
        *_fabric_changes(rack, nodes),
        *(line for name, facts in switches.items() for line in _switch_changes(rack, name, facts)),
    ]
    return tuple(map(printable_line, lines))


def _fabric_changes(rack: Rack, nodes: Mapping[str, NodeFacts]) -> Iterator[str]:
    for name, facts in nodes.items():
        if not facts.links:
            yield f"{name}: its interfaces could not be read, so the changes of a run there are unknown"
            continue
        live = desired.live(facts.links, [*sorted(INTERFACES), *VLAN_DEVICES])
        node = rack.nodes[name]
        problems = desired.problems(rack, node, desired.managed_interfaces(rack, node, None, live))
        for change in problems:
            yield f"{name}: {change.message}"
        yield from (f"{name}: take over {path}" for path in _taken_over(rack, node, facts, bool(problems)))


def _taken_over(rack: Rack, node: Node, facts: NodeFacts, differs: bool) -> list[str]:
    """Return the netplan files of others that a run takes over: none while they have the effect of ours."""
    wanted = desired.wanted(rack, node)
    try:
        whole, rendered = contents(facts.whole), renderers(facts.rendering)
        theirs = files_of_others(facts.naming, whole, owners(facts.owners).devices, wanted)
    except ValueError:
        return []  # a gap of fabric.adopt says it
    held = {path: whole[path] for path in theirs if path in whole and not adoption_blocker(path, whole[path], rendered)}
    if not rack.fabric.adopt or f"{desired.KEPT}:" in facts.naming:
        return []
    stay = held.keys() == theirs.keys() and not differs and is_equivalent(held.values(), wanted)
    return [] if stay else list(held)


def _switch_changes(rack: Rack, name: str, facts: SwitchFacts) -> Iterator[str]:
    try:
        found = plan(rack, rack.switches[name], facts.reading)
    except (RefusedError, UnreadableError) as fault:
        yield f"{name}: a run refuses it: {fault}"
        return
    for batch in found.batches:
        yield f"{name}: {batch.title} ({batch.effect}): {_shown_rows(batch)}"
    for line in (*found.upgrades, *found.faults):
        yield f"{name}: {line}"


def _shown_rows(batch: ChangeBatch) -> str:
    rows = [f"{change.row} {', '.join(map(str, change.fields)) or 'removed'}" for change in batch.changes]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return "; ".join(rows[:SHOWN]) + more
