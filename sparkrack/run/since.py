"""What came and what went between two runs of `sparkrack drift`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkrack.run.drift import Difference, Drift, Kind, Since


def since(then: Drift, now: Drift, run: str) -> Since:
    """What came and what went between two runs; `run` is the name of the earlier one.

    Only what the other run could tell counts: a finding has not gone because nobody could look.
    """
    before, after = _differences(then), _differences(now)
    told_then, told_now = _told(then), _told(now)
    return Since(
        run=run,
        made=then.made,
        came=tuple(one for one in after if one not in before and _comparable(one, told_then)),
        went=tuple(one for one in before if one not in after and _comparable(one, told_now)),
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


def _differences(drift: Drift) -> dict[Difference, None]:
    """Everything that was found, once each, in its order."""
    found: dict[Difference, None] = {}
    for machine in drift.machines:
        if machine.why:
            found[Difference(machine=machine.name, role="", kind=Kind.UNKNOWN, text=machine.why)] = None
        for role, finding in machine.found(*Kind):
            found[Difference(machine=machine.name, role=role, kind=finding.kind, text=finding.text)] = None
    return found
