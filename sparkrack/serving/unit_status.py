"""State of the declared units, as data; it is also the JSON of `sparkrack serve status`. None is an unknown value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pydantic import Field

from core.model import Rack, image_lock, model_lock
from core.model.errors import printable_line
from core.model.fields import seconds
from core.model.lock_file import lock_path
from core.util.records import Record, Text
from serving.desired import declared_version, locked_unit
from serving.facts import starts_again
from serving.options import ServedUnit
from sparkrack.serving.coordinator import (
    STOPPED,
    CoordinatorError,
    CoordinatorStatus,
    UnitAbsentError,
    UnitState,
    as_desired,
)


class UnitRankStatus(Record):
    """A rank. `state`: as its agent reports it; unknown without a recent report. `age`: seconds since that report."""

    rank: int
    node: str
    state: Text
    age: float | None = None
    detail: Text = ""


class RestartsUsed(Record):
    """Restarts `used` within the latest `within` seconds, of the `allowed` ones."""

    used: int | None = None
    allowed: int
    within: int


Phase = Literal["gates", "container", "rendezvous", "weights", "compile", "graphs", "answer"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a start in their order, as serving/files/serve_phases.py has them."""


class StartPhase(Record):
    """A phase of the latest start. `begin`: null when it was not seen; `seconds`: also null while it goes on."""

    phase: Phase
    begin: datetime | None = None
    seconds: float | None = None


class UnitStatus(Record):
    """A declared unit.

    `desired_state`: that of rack.yaml; `asked`: what the coordinator was asked for last. `state`: absent when the head
    has no files of the unit. `as_desired`: null when the state is unknown. `reason`: of the state, or why it is
    unknown. `cause`: what the state follows from: asked, failed, gate or machine; empty when it is unknown. `seconds`:
    since the state began. `figures`: of the latest generation, in seconds: gates_s, ready_s, and by the unit's kind
    completion_s, embedding_s or ranking_s. `phases`: of the latest start, all of them; empty when the coordinator
    does not report them. `failed_gates`: the reason by node. `files`: those with which the
    coordinator runs the unit. They are `declared` in rack.yaml; `previous`, those of generation `previous` (0:
    unknown), which `recreate` went back to; or `other`. Null: unknown, because of `files_unknown`.
    """

    unit: str
    head: str
    desired_state: Literal["up", "down"]
    asked: Literal["up", "down"] | None = None
    state: UnitState | Literal["absent", "unknown"]
    as_desired: bool | None = None
    reason: Text
    cause: Text = ""
    generation: int | None = None
    seconds: float | None = None
    ranks: tuple[UnitRankStatus, ...] = ()
    restarts: RestartsUsed
    figures: dict[str, float] = Field(default_factory=dict)
    phases: tuple[StartPhase, ...] = ()
    failed_gates: dict[str, Text] = Field(default_factory=dict)
    files: Literal["declared", "previous", "other"] | None = None
    previous: int | None = None
    files_unknown: Text = ""


class SlotStatus(Record):
    """Units of which one is up at a time. `declared`: the one that rack.yaml has up; `up`: those that are up, or were
    asked to be. `reason`: how they differ, and which command continues; empty when they agree. `next`: the unit that
    this command names.
    """

    slot: Text
    declared: str | None = None
    up: tuple[str, ...] = ()
    reason: Text = ""
    next: str | None = None


class ServeStatus(Record):
    """The units of a rack, or one of them, and the slots of several units."""

    schema_: Literal["sparkrack.serve-status/1"] = Field(
        "sparkrack.serve-status/1", alias="schema", serialization_alias="schema"
    )
    rack: str
    file: Text
    made: datetime
    units: tuple[UnitStatus, ...]
    slots: tuple[SlotStatus, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: 1 when a unit is unknown, 2 when one is not as desired, else 0."""
        if any(one.as_desired is None for one in self.units):
            return 1
        return 0 if all(one.as_desired for one in self.units) else 2


def build_serve_status(
    rack: Rack, units: Iterable[ServedUnit], answers: Mapping[str, CoordinatorStatus | CoordinatorError]
) -> ServeStatus:
    """Return the state of units from the answers of their coordinators.

    Args:
        rack: the rack.
        units: some of its units.
        answers: by the name of each of these units what its coordinator answered, or why there is no answer.
    """
    chosen = list(units)
    found = tuple(_build_unit_status(rack, unit, answers[unit.name]) for unit in chosen)
    members: dict[str, list[UnitStatus]] = {}
    for unit, one in zip(chosen, found, strict=True):
        if unit.slot:
            members.setdefault(unit.slot, []).append(one)
    return ServeStatus(
        rack=rack.rack,
        file=str(rack.source),
        made=datetime.now(UTC).replace(microsecond=0),
        units=found,
        slots=tuple(_build_slot_status(name, same) for name, same in members.items() if len(same) > 1),
    )


def _build_slot_status(name: str, units: list[UnitStatus]) -> SlotStatus:
    declared = next((one.unit for one in units if one.desired_state == "up"), None)
    up = tuple(one.unit for one in units if one.asked == "up" and one.state not in ("absent", "unknown", "held"))
    moving = [one.unit for one in units if one.state not in (*STOPPED, "absent", "unknown") and one.unit not in up]
    reason, then = "", None
    if any(one.as_desired is None for one in units):
        reason = "which unit is up is unknown"
    elif up and up != (declared,):
        then = up[0] if len(up) == 1 else declared or up[0]
        back = f", `sparkrack serve use {declared}` goes back" if declared and declared != then else ""
        those = f"{', '.join(up)} {'is' if len(up) == 1 else 'are'}"
        reason = (
            f"rack.yaml has {declared or 'none'} up, and {those}: a change was not finished. `sparkrack serve use "
            f"{then}` finishes it{back}"
        )
    elif not up and any(one.unit == declared and one.state not in ("held", "absent") for one in units):
        then = declared
        stopping = f" ({', '.join(moving)} is being stopped)" if moving else ""
        reason = f"no unit is up{stopping}, and rack.yaml has {declared} up: `sparkrack serve use {declared}` starts it"
    return SlotStatus(slot=name, declared=declared, up=up, reason=reason, next=then)


def _build_unit_status(rack: Rack, unit: ServedUnit, answer: CoordinatorStatus | CoordinatorError) -> UnitStatus:
    nodes = unit.ranks(rack.nodes)
    budget = RestartsUsed(allowed=unit.restart.times, within=seconds(unit.restart.within))
    found = UnitStatus(
        unit=unit.name,
        head=nodes[0],
        desired_state=unit.state,
        state="unknown",
        reason=str(answer),
        restarts=budget,
    )
    if isinstance(answer, UnitAbsentError):
        return found.model_copy(update={"state": "absent", "as_desired": unit.state == "down"})
    if isinstance(answer, CoordinatorError):
        return found
    served = tuple(rank.node for rank in answer.ranks)
    used = sum(0 <= answer.clock - at < budget.within for at in answer.restarts)
    reasons = [answer.reason]
    if answer.unsaved:
        reasons.append(f"the coordinator cannot write its record: {answer.unsaved}")
    if answer.probe_fault:
        reasons.append(answer.probe_fault)
    if answer.left:
        reasons.append(f"not every rank is stopped: {printable_line(', '.join(answer.left))}")
    if served != nodes:
        reasons.append(f"the head has the unit on {printable_line(', '.join(served))}; run `sparkrack apply`")
    return UnitStatus(
        unit=unit.name,
        head=nodes[0],
        desired_state=unit.state,
        asked=answer.desired_state,
        state=answer.state,
        as_desired=as_desired(unit, answer.state) and served == nodes and not answer.left,
        reason="; ".join(reasons),
        cause=answer.cause,
        generation=answer.generation,
        seconds=round(max(0.0, answer.clock - answer.since), 1) if answer.generation else None,
        ranks=tuple(
            UnitRankStatus(rank=rank.rank, node=rank.node, state=rank.state, age=rank.age_s, detail=rank.detail)
            for rank in answer.ranks
        ),
        restarts=budget.model_copy(update={"used": used}),
        figures=dict(answer.figures),
        phases=_build_phases(answer),
        failed_gates=dict(answer.failed_gates),
        **_compare_files(rack, unit, answer),
    )


def _build_phases(answer: CoordinatorStatus) -> tuple[StartPhase, ...]:
    """Return all phases of the latest start, in their order; nothing where the coordinator reports none."""
    if not answer.phases:
        return ()
    found = []
    for phase in PHASES:
        seen = answer.phases.get(phase)
        begin = datetime.fromtimestamp(seen.begin, UTC) if seen and seen.begin is not None else None
        found.append(StartPhase(phase=phase, begin=begin, seconds=seen.seconds if seen else None))
    return tuple(found)


def _compare_files(rack: Rack, unit: ServedUnit, answer: CoordinatorStatus) -> dict[str, Any]:
    """Return the fields that compare the files with which a coordinator runs a unit with those of rack.yaml."""
    if answer.version is None:
        return {
            "files_unknown": "its coordinator does not report a version; `sparkrack apply --only serving` renews it"
        }
    lock = lock_path(rack.source)
    try:
        declared = declared_version(
            locked_unit(rack, unit, image_lock.read(lock), model_lock.read_declared(lock, rack.models))
        )
    except ValueError as fault:
        return {"files_unknown": printable_line(str(fault))}
    if answer.version == declared:
        return {"files": "declared"}
    return {"files": "other"} if answer.previous is None else {"files": "previous", "previous": answer.previous}


def next_command(now: ServeStatus) -> list[str]:
    """Return the command that follows from the first unit that is not as desired."""
    for slot in now.slots:
        if slot.next:
            return ["serve", "use", slot.next]
    for one in now.units:
        if one.state == "absent" and not one.as_desired:
            return ["apply"]
        if one.state == "held" and one.desired_state == "up" and not starts_again(one.cause):
            return ["serve", "logs", one.unit]
        if one.as_desired is False and one.state not in ("gating", "starting", "draining", "stopping", "stuck"):
            return ["serve", "start" if one.desired_state == "up" else "stop", one.unit]
        if not one.as_desired:
            return ["serve", "logs", one.unit]
    return ["status"]
