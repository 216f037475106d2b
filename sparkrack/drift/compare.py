"""Findings that appeared or were resolved between two runs of `sparkrack drift`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from core.util.event import EventKind
from sparkrack.drift.findings import Difference, Drift, FindingKind, Since


def compare_runs(then: Drift, now: Drift, run: str) -> Since:
    """Return the findings that appeared or were resolved between two runs; `run` is the name of the earlier one.

    Only complete results of the other run count: a finding is not resolved because it could not be read.
    """
    before, after = _differences_by_identity(then), _differences_by_identity(now)
    complete_then, complete_now = _completeness_by_host(then), _completeness_by_host(now)
    return Since(
        run=run,
        made=then.made,
        appeared=tuple(one for key, one in after.items() if key not in before and _is_comparable(one, complete_then)),
        resolved=tuple(one for key, one in before.items() if key not in after and _is_comparable(one, complete_now)),
        uncompared=tuple(_list_uncompared(complete_then, complete_now)),
    )


_Completeness = Mapping[str, Mapping[str, bool]]
"""For each host, the roles that were read, and whether their result is complete."""


def _completeness_by_host(drift: Drift) -> _Completeness:
    return {machine.name: {looked.role: machine.complete for looked in machine.roles} for machine in drift.hosts}


def _is_comparable(one: Difference, completeness: _Completeness) -> bool:
    roles = completeness.get(one.host, {})
    return all(roles.values()) and bool(roles) if not one.role else roles.get(one.role, False)


def _list_uncompared(then: _Completeness, now: _Completeness) -> Iterator[str]:
    for machine in {**now, **then}:
        before, after = then.get(machine, {}), now.get(machine, {})
        roles = {**after, **before}
        left = [role for role in roles if not (before.get(role) and after.get(role))]
        if left and left == list(roles):
            yield machine
        else:
            yield from (f"{machine} {role}" for role in left)


def _differences_by_identity(drift: Drift) -> dict[tuple[str, str, FindingKind, str], Difference]:
    """Everything that was found, once each, in its order, by what makes it the same as in another run."""
    found: dict[tuple[str, str, FindingKind, str], Difference] = {}
    for machine in drift.hosts:
        if machine.reason:
            away = Difference(
                host=machine.name,
                role="",
                kind=FindingKind.UNKNOWN,
                event_kind=EventKind.UNKNOWN,
                message=machine.reason,
            )
            found[machine.name, "", away.kind, away.message] = away
        for looked in machine.roles:
            for one in looked.findings:
                values = asdict(one)
                del values["diff"]
                difference = Difference(host=machine.name, role=looked.role, **values)
                found.setdefault((machine.name, looked.role, one.kind, one.message), difference)
    return found
