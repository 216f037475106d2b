"""Rules for the gateway of the served units: where it runs, its port, whether it reaches the head of each unit, and
whether the name of a model tells which unit serves it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from core.model.cabling import Cabling
from core.model.errors import Path, RuleViolation, printable_line
from core.model.partial_rack import PartialRack
from serving.engines.registry import ENGINES
from serving.gateway_router import units_by_model
from serving.options import ServingGateway, ServingOptions
from serving.rules import fabric_address_fault, known_ports, port_problem
from serving.unit_ports import master_port

_HERE: Path = ("serving", "gateway")


def check(
    partial: PartialRack, serving: ServingOptions, gateway: ServingGateway, cabling: Cabling
) -> Iterator[RuleViolation]:
    """Yield every broken rule of the gateway."""
    if partial.complete and gateway.node not in partial.nodes:
        near = get_close_matches(gateway.node, list(partial.nodes), 1)
        right = f"did you mean {near[0]}?" if near else "write the name of a node in this file"
        yield RuleViolation((*_HERE, "node"), f"there is no node called {gateway.node}", right)
        return
    if found := port_problem(gateway.port, known_ports(partial) | _unit_ports(partial, serving, gateway), 443):
        yield RuleViolation((*_HERE, "port"), *found)
    if (
        partial.complete
        and gateway.listen == "fabric"
        and (what := fabric_address_fault(partial, gateway.node, cabling))
    ):
        yield RuleViolation((*_HERE, "listen"), what, "write management")
    yield from shared_names(serving)
    for unit in serving.units.values():
        ranks = unit.ranks(partial.nodes)
        if ranks and unit.api.listen == "local" and ranks[0] != gateway.node:
            yield RuleViolation(
                ("serving", "units", unit.name, "api", "listen"),
                f"the unit answers on loopback of {ranks[0]} only, and the gateway is on {gateway.node}",
                f"write management, or {ranks[0]} at serving.gateway.node",
            )


def shared_names(serving: ServingOptions) -> Iterator[RuleViolation]:
    """Yield each name of a model that two units serve: a request at /v1 names its model alone. Units of one slot may
    share a name, since one of them is up at a time."""
    for name, units in units_by_model(serving.units.values()).items():
        first, *others = units
        slots = {serving.units[unit].slot for unit in units}
        if not others:
            continue
        if len(slots) == 1 and None not in slots:
            yield from _other_kinds(serving, name, first, others)
            continue
        for other in others:
            named = "served-model-name" in serving.units[other].args
            place = ("args", "served-model-name") if named else ("model",)
            name_it = f"args: {{served-model-name: {other}}}"
            if not ENGINES[serving.units[other].engine].package:
                name_it = "another name in models for its model, and that name at model"
            yield RuleViolation(
                ("serving", "units", other, *place),
                f"unit {first} serves {printable_line(name)}, too, and a client of the gateway names the model alone",
                f"write {name_it}, or one slot for units of which one is up at a time",
            )


def _other_kinds(serving: ServingOptions, name: str, first: str, others: list[str]) -> Iterator[RuleViolation]:
    """Yield each unit of a slot that answers other paths by a name than the first one: a change of which unit is up
    would change for clients what the name is."""
    kind = serving.units[first].kind
    for other in others:
        if serving.units[other].kind != kind:
            yield RuleViolation(
                ("serving", "units", other, "kind"),
                f"unit {first} of the same slot serves {printable_line(name)} as {kind}: which requests the gateway "
                "answers by this name would follow from which of them is up",
                f"write kind: {kind}, or another name of the model",
            )


def _unit_ports(partial: PartialRack, serving: ServingOptions, gateway: ServingGateway) -> dict[int, str]:
    """The ports of coordinators, ranks and APIs on the node of the gateway."""
    here = [one for one in serving.units.values() if gateway.node in one.ranks(partial.nodes)[:1]]
    coordinators = {
        serving.port + number: "a port of the coordinators (serving.port)" for number in range(max(1, len(here)))
    }
    for one in here:
        meeting = master_port(serving.units, partial.nodes, one)
        meets = ENGINES[one.engine].ports(len(one.ranks(partial.nodes)), meeting)
        coordinators |= {port: f"{what} of unit {one.name}" for port, what in meets.items()}
    return coordinators | {one.api.port: f"the port of the API of unit {one.name}" for one in here}
