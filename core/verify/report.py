"""The outcomes of a verification as one record: the output of `--json`, and the source of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from core.model import Rack, reachable
from core.model.errors import printable_line
from core.util.provenance import Origin
from core.util.records import Record
from core.verify.measurements import AllReduceMeasurement, Bandwidth, Reachability
from core.verify.outcomes import Outcome

Verdict = Literal["passed", "failed", "unknown"]
EXITS: dict[Verdict, int] = {"passed": 0, "failed": 2, "unknown": 1}
"""How the command ends. Unknown outweighs failed: an answer that is not whole is not taken for one that is."""


class Cell(Record):
    """How many checks of one role of one machine came out how."""

    host: str
    role: str
    passed: int = Field(description="checks that passed")
    failed: int = Field(description="differ from what is declared")
    unknown: int = Field(description="could not be learnt")
    skipped: int = Field(description="do not apply to this rack, or were not asked for")


class CheckResult(Record):
    """The result of one check of one host. A check that reports several problems has one entry for each of them."""

    host: str = Field(description="`-`: no host in particular")
    role: str = Field(description="`-`: no role in particular")
    check: str = Field(description="the check with its subject; `-`: all checks of the role")
    verdict: Literal["passed", "failed", "unknown", "skipped"]
    reason: str = Field(description="one line; empty when the check passed")


class Failure(Record):
    """A failed or unknown result as a message. Equal messages of several checks are one entry."""

    host: str = Field(description="`-`: no host in particular")
    role: str = Field(description="`-`: no role in particular")
    reason: str = Field(description="one line")
    unknown: bool = Field(description="could not be learnt, so it is not proven to be wrong")
    checks: tuple[str, ...] = Field(description="the checks that report it")


class Remark(Record):
    """Words about a role that are not a failure."""

    role: str
    text: str


class Report(Record):
    """One verification of one rack."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.verify/2"] = Field("sparkrack.verify/2", alias="schema")
    rack: str = Field(description="the name of the rack")
    origin: Origin
    verdict: Verdict = Field(description="passed: exit 0; failed: exit 2; unknown: exit 1")
    passed: int = Field(description="checks that passed")
    failed: int = Field(description="differ from what is declared")
    unknown: int = Field(description="could not be learnt")
    hosts: tuple[str, ...] = Field(description="nodes and switches this is about")
    roles: tuple[str, ...] = Field(description="roles this is about")
    not_checked: tuple[str, ...] = Field(description="machines and roles that this run excluded")
    cells: tuple[Cell, ...]
    checks: tuple[CheckResult, ...] = Field(description="every result, in the order of the run")
    failures: tuple[Failure, ...]
    skipped: tuple[Remark, ...] = Field(description="checks that were skipped, with the reason")
    notes: tuple[Remark, ...]
    reach: tuple[Reachability, ...] = Field(
        description="every pair that must reach one another; empty without role fabric"
    )
    bandwidth: tuple[Bandwidth, ...] = Field(description="empty without --bandwidth")
    all_reduce: tuple[AllReduceMeasurement, ...] = Field((), description="empty without --bandwidth")

    @property
    def exit(self) -> int:
        """The exit code of the command."""
        return EXITS[self.verdict]

    def to_json(self) -> str:
        """The record as text, with its schema's name first."""
        return self.model_dump_json(by_alias=True, indent=2)


def report(
    rack: Rack,
    machines: Sequence[str],
    roles: Sequence[str],
    outcomes: Iterable[Outcome],
    origin: Origin,
    *,
    all_roles: Sequence[str] = (),
    excluded: Iterable[str] = (),
) -> Report:
    """Put the outcomes of a proof together. `all_roles`: every role there is; `excluded`: as in `prove`."""
    found = tuple(outcomes)
    failed, unknown = (sum(getattr(one, kind) for one in found) for kind in ("failed", "unknown"))
    passed = sum(one.passed for one in found)
    whole = (*rack.nodes, *rack.switches, *all_roles)
    return Report(
        rack=rack.rack,
        origin=origin,
        verdict="unknown" if unknown or not (passed or failed) else "failed" if failed else "passed",
        passed=passed,
        failed=failed,
        unknown=unknown,
        hosts=tuple(machines),
        roles=tuple(roles),
        not_checked=tuple(name for name in whole if name not in {*machines, *roles}),
        cells=tuple(_build_cell(found, machine, role) for role in roles for machine in machines),
        checks=tuple(map(_check_result, found)),
        failures=tuple(_list_failures(found)),
        skipped=tuple(
            dict.fromkeys(Remark(role=one.role, text=printable_line(one.why)) for one in found if one.skipped)
        ),
        notes=tuple(
            dict.fromkeys(Remark(role=one.role, text=printable_line(text)) for one in found for text in one.notes)
        ),
        reach=_reachable_pairs(rack, machines, found, frozenset(excluded)) if "fabric" in roles else (),
        bandwidth=tuple(value for one in found for value in one.measured if isinstance(value, Bandwidth)),
        all_reduce=tuple(value for one in found for value in one.measured if isinstance(value, AllReduceMeasurement)),
    )


def _build_cell(outcomes: Iterable[Outcome], machine: str, role: str) -> Cell:
    own = [one for one in outcomes if (one.machine, one.role) == (machine, role)]
    kinds = ("passed", "failed", "unknown", "skipped")
    return Cell(host=machine, role=role, **{kind: sum(getattr(one, kind) for one in own) for kind in kinds})


def _check_result(one: Outcome) -> CheckResult:
    return CheckResult(
        host=one.machine,
        role=one.role,
        check=printable_line(_check_name(one)),
        verdict="passed" if one.passed else "skipped" if one.skipped else "unknown" if one.unknown else "failed",
        reason=printable_line(one.why),
    )


def _check_name(one: Outcome) -> str:
    """Return the name of a check without its file."""
    return one.check.rpartition("::")[2]


def _list_failures(outcomes: Iterable[Outcome]) -> Iterable[Failure]:
    """Yield the failures, in their order: a dead node fails a hundred checks with the same message, which is reported
    once.

    Messages come from hosts: characters that control a terminal or reverse the text are written as escapes.
    """
    checks: dict[tuple[str, str, str, bool], list[str]] = {}
    for one in outcomes:
        if one.failed or one.unknown:
            checks.setdefault((one.machine, one.role, printable_line(one.why), one.unknown), []).append(
                _check_name(one)
            )
    for (machine, role, why, unknown), names in checks.items():
        yield Failure(host=machine, role=role, reason=why, unknown=unknown, checks=tuple(dict.fromkeys(names)))


def _reachable_pairs(
    rack: Rack, machines: Sequence[str], outcomes: Iterable[Outcome], excluded: frozenset[str]
) -> tuple[Reachability, ...]:
    """Return every pair of the rack in this verification; unknown where no check has a result."""
    measured = {
        (value.sender, value.sender_device, value.receiver, value.receiver_device): value
        for one in outcomes
        for value in one.measured
        if isinstance(value, Reachability)
    }
    return tuple(
        measured.get((here.half.node, here.device, there.half.node, there.device))
        or Reachability.between(here, there, rack.fabric.mtu, None)
        for here, there in reachable(rack)
        if here.half.node in machines and there.half.node not in excluded
    )
