"""How the lanes of cages differ from rack.yaml: said of the cage, of a leg or of a lane, whichever a user declared.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkrack.fleet.splits import SPLITS, cage_kind

from .cages import SPEED, describe, lanes_of, masters_of, split_of
from .diff import Change, FieldChange
from .menus import ETHERNET, Row
from .values import canonical

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

    from .reading import Reading

_SPLITTING = ("auto-negotiation", "speed")


def lanes(switch: Switch, reading: Reading, changes: Iterable[Change]) -> Iterator[str]:
    """One line for each thing that differs; lanes and legs of a cage that differ alike share one."""
    known = tuple(changes)
    for cage in switch.cages:
        names = lanes_of(cage)
        of_cage = sorted((change for change in known if change.row in names), key=lambda c: names.index(c.row))
        yield from _cage(switch, reading.ethernet, cage, _joined(of_cage))


def _joined(changes: Iterable[Change]) -> dict[str, dict[str, FieldChange]]:
    """The fields that change by lane: a plan may write those of one lane in two batches."""
    joined: dict[str, dict[str, FieldChange]] = {}
    for change in changes:
        joined.setdefault(change.row, {}).update({field.name: field for field in change.fields})
    return joined


def _cage(
    switch: Switch, rows: Mapping[str, Row], cage: str, changes: Mapping[str, Mapping[str, FieldChange]]
) -> Iterator[str]:
    masters, names = masters_of(switch, cage), lanes_of(cage)
    split, wanted = split_of(switch, cage), f"{switch.cages[cage].split} {switch.cages[cage].medium}"
    # A lane that is off is told by itself; the cage is described as if it were on.
    found = describe(cage, {name: {**rows[name], "disabled": "no"} for name in names})
    whole = found in _words(cage) and any(field in changes[name] for name in changes for field in _SPLITTING)
    if whole:
        yield f"cage {cage} is {found}, wanted {wanted}"
    legs: dict[str, list[str]] = {}
    single: dict[str, list[int]] = {}
    for name, fields in changes.items():
        number = names.index(name) + 1
        for field in fields.values():
            if name in masters and field.name not in ("l2mtu", "mtu"):
                if not (whole and field.name in _SPLITTING):
                    legs.setdefault(_leg(field, fields), []).append(f"{switch.name}/{name}")
            elif field.name == "disabled":
                lost = "half its lanes" if split.lanes_per_leg == 2 else "some of its lanes"
                yield f"lane {number} of cage {cage} is disabled: its leg would lose {lost}; wanted enabled"
            else:
                single.setdefault(f"{field.name} is {_old(field)}, wanted {field.new}", []).append(number)
    for text, told in legs.items():
        if text:
            yield f"leg{'s' if len(told) > 1 else ''} {', '.join(told)}: {text}"
    for text, numbers in single.items():
        yield f"{lane_words(numbers)} of cage {cage}: {text}"


def _words(cage: str) -> set[str]:
    """What a whole cage may be called."""
    return {"auto-negotiated", *(f"{split} {medium}" for split in SPLITS[cage_kind(cage)] for medium in SPEED)}


def _leg(field: FieldChange, fields: Mapping[str, FieldChange]) -> str:
    """What differs of a leg; empty for a speed that has no meaning while it is negotiated."""
    match field.name:
        case "fec-mode":
            return f"FEC is {_old(field)}, wanted {field.new}"
        case "disabled":
            return "it is disabled, wanted enabled"
        case "auto-negotiation":
            return f"it negotiates its speed, wanted forced{_to(fields)}"
        case "speed" if "auto-negotiation" in fields:
            return ""
    return f"{field.name} is {_old(field)}, wanted {field.new}"


def _to(fields: Mapping[str, FieldChange]) -> str:
    return f" to {fields['speed'].new}" if "speed" in fields else ""


def _old(field: FieldChange) -> str:
    told = ETHERNET.fields[field.name]
    value = told.default if field.old is None else field.old
    return "not told" if value is None else canonical(told.kind, value)


def lane_words(numbers: Sequence[int]) -> str:
    """ "lane 3", "lanes 1-4, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"lane{'s' if len(numbers) > 1 else ''} {', '.join(words)}"
