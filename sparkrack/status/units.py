"""States of the served units, from the answer of a node that is the head of some. Pure."""

from __future__ import annotations

from core.model import Rack
from core.probes.protocol import parse_commands
from serving.options import ServedUnit
from sparkrack.serving.coordinator import ABSENT, CoordinatorError, as_desired, parse_status
from sparkrack.status.model import ServedUnitState
from sparkrack.status.probe_script import headed_units


def unit_states(rack: Rack, node: str, output: str | None) -> tuple[ServedUnitState, ...]:
    """Return the states of the units whose head is a node. `output`: of its script; None without an answer."""
    return tuple(_unit_state(rack, unit, node, output) for unit in headed_units(rack, node))


def _unit_state(rack: Rack, unit: ServedUnit, node: str, output: str | None) -> ServedUnitState:
    found = ServedUnitState(name=unit.name, nodes=unit.ranks(rack.nodes), desired_state=unit.state)
    try:
        answer = parse_commands(output or "").get(f"serve-{unit.name}")
        if answer is not None and answer.code == ABSENT:
            return found.model_copy(update={"state": "absent", "as_desired": unit.state == "down"})
        if answer is None or answer.code:
            return found
        state = parse_status(unit, node, answer.text).state
    except (ValueError, CoordinatorError):
        return found
    return found.model_copy(update={"state": state, "as_desired": as_desired(unit, state)})
