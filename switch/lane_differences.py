"""Differences between the lanes of cages and rack.yaml, described for the cage, a leg or a lane, depending on the
declaration. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.hardware.cage_kinds import cage_kind
from core.routeros.diff import FieldChange, RowChange
from core.routeros.menus import ETHERNET, Row
from core.routeros.values import canonical
from switch.cages import NEGOTIATED, SPEED, declared_words, describe, lanes_of, masters_of, split_of, unused_lanes

if TYPE_CHECKING:
    from core.model import Switch
    from core.routeros.reading import SwitchReading

_SPLITTING = ("auto-negotiation", "speed")


def lanes(switch: Switch, reading: SwitchReading, changes: Iterable[RowChange]) -> Iterator[str]:
    """Yield one line for each difference; lanes and legs of a cage with the same difference share one."""
    known = tuple(changes)
    for cage in switch.cages:
        names = lanes_of(cage)
        of_cage = sorted((change for change in known if change.row in names), key=lambda c: names.index(c.row))
        yield from _cage_lines(switch, reading.ethernet, cage, _changes_by_lane(of_cage))


def _changes_by_lane(changes: Iterable[RowChange]) -> dict[str, dict[str, FieldChange]]:
    """The fields that change by lane: a plan may write those of one lane in two batches."""
    joined: dict[str, dict[str, FieldChange]] = {}
    for change in changes:
        joined.setdefault(change.row, {}).update({field.name: field for field in change.fields})
    return joined


def _cage_lines(
    switch: Switch, rows: Mapping[str, Row], cage: str, changes: Mapping[str, Mapping[str, FieldChange]]
) -> Iterator[str]:
    masters, unused, names = masters_of(switch, cage), unused_lanes(switch, cage), lanes_of(cage)
    split, wanted = split_of(switch, cage), declared_words(switch, cage)
    found, words = describe(cage, rows), _cage_names(cage)
    if found not in words:
        # A disabled lane of a leg is reported separately; the cage is described as if it were enabled.
        enabled = {name: {**rows[name], "disabled": "no"} for name in names if name not in unused}
        found = describe(cage, {**rows, **enabled})
    whole = found in words and any(field in changes[name] for name in changes for field in _SPLITTING)
    if whole:
        yield f"cage {cage} is {found}, wanted {wanted}"
    legs: dict[str, list[str]] = {}
    single: dict[str, list[int]] = {}
    for name, fields in changes.items():
        number = names.index(name) + 1
        for field in fields.values():
            if name in masters and field.name not in ("l2mtu", "mtu"):
                if not (whole and field.name in _SPLITTING):
                    legs.setdefault(_leg_difference(field, fields, rows[name]), []).append(f"{switch.name}/{name}")
            elif name in unused and field.name == "disabled":
                text = f"enabled, wanted disabled (no leg of {split.name} takes it)"
                single.setdefault(text, []).append(number)
            elif field.name == "disabled":
                lost = "half its lanes" if split.lanes_per_leg == 2 else "some of its lanes"
                yield f"lane {number} of cage {cage} is disabled: its leg would lose {lost}; wanted enabled"
            else:
                single.setdefault(f"{field.name} is {_old_text(field)}, wanted {field.new}", []).append(number)
    for text, affected in legs.items():
        if text:
            yield f"leg{'s' if len(affected) > 1 else ''} {', '.join(affected)}: {text}"
    for text, numbers in single.items():
        yield f"{lane_words(numbers)} of cage {cage}: {text}"


def _cage_names(cage: str) -> set[str]:
    """Return the possible names of a whole cage."""
    return {NEGOTIATED, *(f"{split} {medium}" for split in cage_kind(cage).breakouts for medium in SPEED)}


def _leg_difference(field: FieldChange, fields: Mapping[str, FieldChange], before: Row) -> str:
    """Describe the difference of a leg; empty for a speed that has no meaning while it is negotiated."""
    match field.name:
        case "fec-mode":
            return f"FEC is {_old_text(field)}, wanted {field.new}"
        case "disabled":
            return "it is disabled, wanted enabled"
        case "auto-negotiation":
            if field.new == "yes":
                return f"it is forced to {before.get('speed', 'no speed')}, wanted negotiated"
            return f"it negotiates its speed, wanted forced{_new_speed_text(fields)}"
        case "speed" if "auto-negotiation" in fields:
            return ""
    return f"{field.name} is {_old_text(field)}, wanted {field.new}"


def _new_speed_text(fields: Mapping[str, FieldChange]) -> str:
    return f" to {fields['speed'].new}" if "speed" in fields else ""


def _old_text(field: FieldChange) -> str:
    spec = ETHERNET.fields[field.name]
    value = spec.default if field.old is None else field.old
    return "not reported" if value is None else canonical(spec.kind, value)


def lane_words(numbers: Sequence[int]) -> str:
    """Format lane numbers: "lane 3", "lanes 1-4, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"lane{'s' if len(numbers) > 1 else ''} {', '.join(words)}"
