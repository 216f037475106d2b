"""Several units on one node: what they take of it together, which ports differ, and how much each container may have.

Units with `state: up` run together, and of each slot one unit, whichever `sparkrack serve use` has brought up: the sum
of a node has the largest of each slot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.model import Rack
from core.model.errors import RuleViolation
from core.model.fields import mebibytes
from core.model.partial_rack import PartialRack
from core.model.role import reserved_gib
from roles.docker.options import DockerOptions
from roles.memory.options import MemoryOptions, host_gib
from serving.engines.engine import RAY_PORT
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.fit import UnitFit, declared_overhead, host_memory_of, parallel_of
from serving.options import ServedUnit, ServingOptions, served_units
from serving.unit_ports import MASTER_PORT, Nodes, coordinator_port, master_port

Fits = Mapping[str, UnitFit | None]
"""The memory of each unit by name; None where the lock file has no record of its model."""


@dataclass(frozen=True)
class NodeSum:
    """What the units of a node take together, in GiB. `parts`: by unit, of a slot the largest. `allowed`: the most."""

    node: str
    parts: Mapping[str, float]
    allowed: float

    @property
    def total(self) -> float:
        """GiB of all of them."""
        return sum(self.parts.values())


def run_together(one: ServedUnit, other: ServedUnit) -> bool:
    """Return whether two units can be up at the same time by what rack.yaml declares."""
    if one.slot is not None and one.slot == other.slot:
        return False
    return all(unit.state == "up" or unit.slot for unit in (one, other))


def taken_gib(unit: ServedUnit, found: UnitFit | None, memory: float) -> float:
    """Return what a unit takes of each of its nodes, at least.

    Args:
        unit: the unit.
        found: its memory; None where the lock file has no record of its model.
        memory: GiB of a node that programs share.
    """
    if unit.memory:
        beside = found.fit.host if found else host_memory_of(unit, parallel_of(unit).nodes).gib
        return unit.memory * memory + beside
    if found:
        return found.fit.total
    cache = mebibytes(unit.kv) / 1024 if unit.kv else 0.0
    return cache + declared_overhead(unit)


def node_sums(
    units: Mapping[str, ServedUnit], nodes: Nodes, fits: Fits, memory: MemoryOptions, reserved: float
) -> list[NodeSum]:
    """Return the sum of each node on which several units can be up at the same time.

    Args:
        units: the units of the rack by name, in the order of its file.
        nodes: the names of its nodes.
        fits: the memory of each unit.
        memory: the section `memory`.
        reserved: GiB of each node that its crash kernel keeps.
    """
    node_gib = MEMORY_GIB - reserved
    allowed = min(HIGHEST_SHARE * node_gib, node_gib - host_gib(memory))
    found = []
    for node in nodes:
        here = [one for one in units.values() if node in one.ranks(nodes) and (one.state == "up" or one.slot)]
        largest: dict[str, tuple[str, float]] = {}
        for one in here:
            taken = taken_gib(one, fits.get(one.name), node_gib)
            key = f"slot {one.slot}" if one.slot else f"unit {one.name}"
            if key not in largest or taken > largest[key][1]:
                largest[key] = one.name, taken
        if len(largest) > 1:
            found.append(NodeSum(node, dict(largest.values()), allowed))
    return found


def check_shared_nodes(partial: PartialRack, serving: ServingOptions, fits: Fits) -> Iterator[RuleViolation]:
    """Yield every broken rule of units that share nodes, or a slot.

    Args:
        partial: the rack file.
        serving: its section `serving`.
        fits: the memory of each unit; None where it is unknown.
    """
    yield from _check_slots(serving)
    yield from _check_memory_sums(partial, serving, fits)
    yield from _check_ports(partial, serving)
    yield from _check_ray_ports(partial, serving)


def _check_slots(serving: ServingOptions) -> Iterator[RuleViolation]:
    up: dict[str, str] = {}
    for unit in serving.units.values():
        if unit.slot is None:
            continue
        place = ("serving", "units", unit.name)
        if "state" not in unit.model_fields_set:
            yield RuleViolation(
                (*place, "slot"),
                "the unit does not say whether it is the one of its slot that is up",
                "write state: up or state: down, which `sparkrack serve use` changes",
            )
        elif unit.state == "up" and (holder := up.setdefault(unit.slot, unit.name)) != unit.name:
            yield RuleViolation(
                (*place, "state"),
                f"unit {holder} of slot {unit.slot} is to be up as well, and of one slot one unit is up at a time",
                "write state: down at one of them",
            )


def _check_memory_sums(partial: PartialRack, serving: ServingOptions, fits: Fits) -> Iterator[RuleViolation]:
    options = partial.options.get("memory")
    memory = options if isinstance(options, MemoryOptions) else MemoryOptions()
    reported: set[tuple[str, ...]] = set()
    for found in node_sums(serving.units, partial.nodes, fits, memory, reserved_gib(partial.options.get)):
        names = tuple(found.parts)
        if found.total <= found.allowed or names in reported:
            continue
        reported.add(names)
        parts = ", ".join(f"{name} {gib:.1f}" for name, gib in found.parts.items())
        last = serving.units[names[-1]]
        yield RuleViolation(
            ("serving", "units", last.name, *_key_to_blame(last)),
            f"the units that can be up on {found.node} take {found.total:.1f} GiB together ({parts}), and a node gives "
            f"at most {found.allowed:.1f}",
            "write less, other nodes, state: down at one of them, or one slot for units that are alternatives",
        )


def _key_to_blame(unit: ServedUnit) -> tuple[str, ...]:
    """Return the key of a unit with what it takes of a node."""
    if unit.memory or unit.kv:
        return ("memory",) if unit.memory else ("kv",)
    return ("custom", "weights")


def _check_ports(partial: PartialRack, serving: ServingOptions) -> Iterator[RuleViolation]:
    """Ports on the head of a unit: that of its API is declared, those of coordinators and ranks follow."""
    units, nodes = serving.units, partial.nodes
    for number, unit in enumerate(units.values()):
        head = unit.ranks(nodes)[:1]
        same = [one for one in units.values() if one.ranks(nodes)[:1] == head and head]
        own = coordinator_port(serving.port, units, nodes, unit)
        fixed = {RAY_PORT: "the port of Ray"} | {
            master_port(units, nodes, one): f"where the ranks of unit {one.name} find each other" for one in same
        }
        # The first port is judged with those of each unit.
        if own in fixed and (own != serving.port or own not in (MASTER_PORT, RAY_PORT)):
            yield RuleViolation(
                ("serving", "port"),
                f"the coordinator of unit {unit.name}, one port after that of the unit before it on {head[0]}, would "
                f"use {own}, {fixed[own]}",
                "write another, like 29400",
            )
        path = ("serving", "units", unit.name, "api", "port")
        earlier = list(units.values())[:number]
        for one in (one for one in same if one in earlier and one.api.port == unit.api.port):
            if run_together(one, unit):
                why = "and both can be up"
            elif one.slot and one.slot == unit.slot and (serving.gateway or partial.options.get("watch")):
                # A request for the unit that is down, or a look at its metrics, would be answered by the other one.
                why = "and the gateway and the watch tell units of a slot apart by their ports"
            else:
                continue
            yield RuleViolation(
                path,
                f"{unit.api.port} is the port of unit {one.name} on {head[0]} as well, {why}",
                f"write another, like {_free_port(unit.api.port, same)}",
            )
            break
        # The ports of the first unit of a head are refused for every unit of the rack.
        for one in same[1:]:
            coordinator, ranks = coordinator_port(serving.port, units, nodes, one), master_port(units, nodes, one)
            if unit.api.port not in (coordinator, ranks):
                continue
            whose = "that of its coordinator" if unit.api.port == coordinator else "where its ranks find each other"
            yield RuleViolation(
                path,
                f"{unit.api.port} is a port of unit {one.name} on {head[0]}, {whose}",
                f"write another, like {_free_port(8000, same)}",
            )
            break


def _free_port(first: int, units: Sequence[ServedUnit]) -> int:
    taken = {unit.api.port for unit in units}
    return next(port for port in range(first + 1, first + 1 + len(taken) + 1) if port not in taken)


def _check_ray_ports(partial: PartialRack, serving: ServingOptions) -> Iterator[RuleViolation]:
    """Ray gives its workers ports from 10002 to 19999 on each node, and its agent 52365 (reported, not read in Ray)."""
    joined = [
        unit for unit in serving.units.values() if unit.engine == "vllm-ray" and len(unit.ranks(partial.nodes)) > 1
    ]
    for number, unit in enumerate(joined):
        for one in joined[:number]:
            shared = [name for name in unit.ranks(partial.nodes) if name in one.ranks(partial.nodes)]
            if shared and run_together(one, unit):
                yield RuleViolation(
                    ("serving", "units", unit.name, "engine"),
                    f"unit {one.name} uses Ray on {shared[0]} as well, both can be up, and two of them use the same "
                    f"ports there ({RAY_PORT}, 10002 to 19999)",
                    "write engine: vllm, other nodes, or one slot for both",
                )
                break


def shared_node_notes(rack: Rack) -> Iterator[RuleViolation]:
    """SGLang takes its share of what is free before it loads the model (its --mem-fraction-static), not of all memory:
    beside a unit that is up it takes less than is counted here, and its cache is smaller."""
    units = list(served_units(rack).values())
    for unit in units:
        ranks = set(unit.ranks(rack.nodes))
        others = (one for one in units if one is not unit and run_together(one, unit))
        beside = next((one for one in others if ranks & {*one.ranks(rack.nodes)}), None)
        if unit.family == "sglang" and beside:
            yield RuleViolation(
                ("serving", "units", unit.name, "memory"),
                f"SGLang takes its share of what is free when it starts, which is less while unit {beside.name} is up",
                f"start {unit.name} first, or write a larger share",
            )


def container_ceiling(rack: Rack, unit: ServedUnit) -> str:
    """Return the most memory that the container of a unit may have, as `docker.memory` is written: its share of a
    node, the host's memory that its options take, and its shared memory; at most `docker.memory`, which is also that
    of all containers of a node together. It does not depend on other units, whose changes leave it as it is.

    A unit with `kv` has `docker.memory`: its weights are known to the lock file only.
    """
    node = rack.options(DockerOptions).memory
    own = declared_mebibytes(rack, unit) + mebibytes(unit.shm)
    return f"{own}M" if own < mebibytes(node) else node


def declared_mebibytes(rack: Rack, unit: ServedUnit) -> int:
    """Return the MiB that a unit declares to take of each of its nodes, beside its shared memory."""
    if not unit.memory:
        return mebibytes(rack.options(DockerOptions).memory)
    taken = unit.memory * MEMORY_GIB + host_memory_of(unit, parallel_of(unit).nodes).gib
    return math.ceil(taken * 1024)
