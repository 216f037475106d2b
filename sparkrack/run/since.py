"""What came and what went between two runs of `sparkrack drift`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkrack.ops.account import Sort
from sparkrack.run.drift import Difference, Drift, Kind, Since


def since(then: Drift, now: Drift, run: str) -> Since:
    """What came and what went between two runs; `run` is the name of the earlier one.

    Only what the other run could tell counts: a finding has not gone because nobody could look.
    """
    before, after = _found(then), _found(now)
    told_then, told_now = _told(then), _told(now)
    return Since(
        run=run,
        made=then.made,
        came=tuple(one for key, one in after.items() if key not in before and _comparable(one, told_then)),
        went=tuple(one for key, one in before.items() if key not in after and _comparable(one, told_now)),
        uncompared=tuple(_uncompared(told_then, told_now)),
    )


_Told = Mapping[str, Mapping[str, bool]]
"""For each machine, the roles that were looked at, and whether what they say is whole."""


def _told(drift: Drift) -> _Told:
    return {machine.name: {looked.role: machine.told for looked in machine.roles} for machine in drift.machines}


def _comparable(one: Difference, told: _Told) -> bool:
    roles = told.get(one.machine, {})
    return all(roles.values()) and bool(roles) if not one.role else roles.get(one.role, False)


def _uncompared(then: _Told, now: _Told) -> Iterator[str]:
    for machine in {**now, **then}:
        before, after = then.get(machine, {}), now.get(machine, {})
        roles = {**after, **before}
        left = [role for role in roles if not (before.get(role) and after.get(role))]
        if left and left == list(roles):
            yield machine
        else:
            yield from (f"{machine} {role}" for role in left)


def _found(drift: Drift) -> dict[tuple[str, str, Kind, str], Difference]:
    """Everything that was found, once each, in its order, by what makes it the same as in another run."""
    found: dict[tuple[str, str, Kind, str], Difference] = {}
    for machine in drift.machines:
        said = [(looked.role, one.kind, one.sort, one.text) for looked in machine.roles for one in looked.findings]
        away = [("", Kind.UNKNOWN, Sort.UNKNOWN, machine.why)] if machine.why else []
        for role, kind, sort, text in (*away, *said):
            one = Difference(machine=machine.name, role=role, kind=kind, sort=sort, text=text)
            found.setdefault((machine.name, role, kind, text), one)
    return found
