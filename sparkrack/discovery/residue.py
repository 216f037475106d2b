"""What a run would change of what was found, if the file is used as it was written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roles.fabric import adopt, state
from sparkrack.discovery.node import NodeFacts
from sparkrack.discovery.switch import SwitchFacts
from sparkrack.fleet import VLAN_DEVICES, Rack
from sparkrack.fleet.errors import one_line
from switch.batch import Batch
from switch.errors import RefusedError, UnreadableError
from switch.plan import plan

SHOWN = 4
"""Rows of a table that are told by name; more of them are counted."""


def changes(rack: Rack, nodes: Mapping[str, NodeFacts], switches: Mapping[str, SwitchFacts]) -> tuple[str, ...]:
    """Live values of fabric and switch that differ from the rack's, by the comparison that a run makes, a line each.

    Files and units of this project, which no rack has that was configured by hand, are not values and not told.
    """
    lines = [*_fabric(rack, nodes), *(line for name, facts in switches.items() for line in _switch(rack, name, facts))]
    return tuple(map(one_line, lines))


def _fabric(rack: Rack, nodes: Mapping[str, NodeFacts]) -> Iterator[str]:
    for name, facts in nodes.items():
        if not facts.links:
            yield f"{name}: its interfaces could not be read, so what a run changes there is not known"
            continue
        live = state.live(facts.links, [*sorted(adopt.FABRIC), *VLAN_DEVICES])
        node = rack.nodes[name]
        for line in state.faults(rack, node, state.concerned(rack, node, None, live)):
            yield f"{name}: {line}"


def _switch(rack: Rack, name: str, facts: SwitchFacts) -> Iterator[str]:
    try:
        found = plan(rack, rack.switches[name], facts.reading)
    except (RefusedError, UnreadableError) as fault:
        yield f"{name}: a run refuses it: {fault}"
        return
    for batch in found.batches:
        yield f"{name}: {batch.title} ({batch.effect}): {_rows(batch)}"
    for line in found.faults:
        yield f"{name}: {line}"


def _rows(batch: Batch) -> str:
    rows = [f"{change.row} {', '.join(map(str, change.fields)) or 'removed'}" for change in batch.changes]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return "; ".join(rows[:SHOWN]) + more
