"""The outcomes of a proof as one record: what `--json` prints, and what the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from sparkrack.fleet import Rack, reachable
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.record import Record
from sparkrack.proof.found import Bandwidth, Reach
from sparkrack.proof.origin import Origin
from sparkrack.proof.outcome import Outcome

Verdict = Literal["proven", "otherwise", "unknown"]
EXITS: dict[Verdict, int] = {"proven": 0, "otherwise": 2, "unknown": 1}
"""How the command ends. Unknown outweighs otherwise: an answer that is not whole is not taken for one that is."""


class Cell(Record):
    """How many checks of one part of one machine came out how."""

    machine: str
    part: str
    passed: int = Field(description="checks that passed")
    failed: int = Field(description="proven to be otherwise than declared")
    unknown: int = Field(description="could not be learnt")
    left_out: int = Field(description="do not apply to this rack, or were not asked for")


class Failure(Record):
    """What is wrong, or what could not be learnt, in words. The same words of several checks are one entry."""

    machine: str = Field(description="`-`: no machine in particular")
    part: str = Field(description="`-`: no part in particular")
    why: str = Field(description="one line")
    unknown: bool = Field(description="could not be learnt, so it is not proven to be wrong")
    checks: tuple[str, ...] = Field(description="the checks that say so")


class Remark(Record):
    """Words about a part that are no failure."""

    part: str
    text: str


class Report(Record):
    """One proof of one rack."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.verify/1"] = Field("sparkrack.verify/1", alias="schema")
    rack: str = Field(description="the name of the rack")
    origin: Origin
    verdict: Verdict = Field(description="proven: exit 0; otherwise: exit 2; unknown: exit 1")
    passed: int = Field(description="checks that passed")
    failed: int = Field(description="proven to be otherwise than declared")
    unknown: int = Field(description="could not be learnt")
    machines: tuple[str, ...] = Field(description="nodes and switches this is about")
    parts: tuple[str, ...] = Field(description="parts this is about")
    not_looked_at: tuple[str, ...] = Field(description="machines and parts that this run was told to leave")
    cells: tuple[Cell, ...]
    failures: tuple[Failure, ...]
    left_out: tuple[Remark, ...] = Field(description="checks that were left out, with the reason")
    notes: tuple[Remark, ...]
    reach: tuple[Reach, ...] = Field(description="every pair that must reach one another; empty without part fabric")
    bandwidth: tuple[Bandwidth, ...] = Field(description="empty without --bandwidth")

    @property
    def exit(self) -> int:
        """How the command ends."""
        return EXITS[self.verdict]

    def to_json(self) -> str:
        """The record as text, with its schema's name first."""
        return self.model_dump_json(by_alias=True, indent=2)


def report(
    rack: Rack,
    machines: Sequence[str],
    parts: Sequence[str],
    outcomes: Iterable[Outcome],
    origin: Origin,
    *,
    all_parts: Sequence[str] = (),
    excluded: Iterable[str] = (),
) -> Report:
    """Put the outcomes of a proof together. `all_parts`: every part there is; `excluded`: as in `prove`."""
    found = tuple(outcomes)
    failed, unknown = (sum(getattr(one, kind) for one in found) for kind in ("failed", "unknown"))
    passed = sum(one.passed for one in found)
    whole = (*rack.nodes, *rack.switches, *all_parts)
    return Report(
        rack=rack.rack,
        origin=origin,
        verdict="unknown" if unknown or not (passed or failed) else "otherwise" if failed else "proven",
        passed=passed,
        failed=failed,
        unknown=unknown,
        machines=tuple(machines),
        parts=tuple(parts),
        not_looked_at=tuple(name for name in whole if name not in {*machines, *parts}),
        cells=tuple(_cell(found, machine, part) for part in parts for machine in machines),
        failures=tuple(_failures(found)),
        left_out=tuple(dict.fromkeys(Remark(part=one.role, text=one_line(one.why)) for one in found if one.left_out)),
        notes=tuple(dict.fromkeys(Remark(part=one.role, text=one_line(text)) for one in found for text in one.notes)),
        reach=_reach(rack, machines, found, frozenset(excluded)) if "fabric" in parts else (),
        bandwidth=tuple(value for one in found for value in one.measured if isinstance(value, Bandwidth)),
    )


def _cell(outcomes: Iterable[Outcome], machine: str, part: str) -> Cell:
    mine = [one for one in outcomes if (one.machine, one.role) == (machine, part)]
    kinds = ("passed", "failed", "unknown", "left_out")
    return Cell(machine=machine, part=part, **{kind: sum(getattr(one, kind) for one in mine) for kind in kinds})


def _failures(outcomes: Iterable[Outcome]) -> Iterable[Failure]:
    """What did not pass, in its order: a dead node fails a hundred checks in the same words, which are told once.

    Words come from machines: what would steer a terminal or turn the text round is written as an escape.
    """
    checks: dict[tuple[str, str, str, bool], list[str]] = {}
    for one in outcomes:
        if one.failed or one.unknown:
            name = one.check.rpartition("::")[2]
            checks.setdefault((one.machine, one.role, one_line(one.why), one.unknown), []).append(name)
    for (machine, part, why, unknown), names in checks.items():
        yield Failure(machine=machine, part=part, why=why, unknown=unknown, checks=tuple(dict.fromkeys(names)))


def _reach(
    rack: Rack, machines: Sequence[str], outcomes: Iterable[Outcome], excluded: frozenset[str]
) -> tuple[Reach, ...]:
    """Every pair of the rack that this proof was about; unknown where no check could tell."""
    told = {
        (value.sender, value.sender_device, value.receiver, value.receiver_device): value
        for one in outcomes
        for value in one.measured
        if isinstance(value, Reach)
    }
    return tuple(
        told.get((here.half.node, here.device, there.half.node, there.device))
        or Reach.between(here, there, rack.fabric.mtu, None)
        for here, there in reachable(rack)
        if here.half.node in machines and there.half.node not in excluded
    )
