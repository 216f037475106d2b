"""/interface/ethernet/switch/qos/map, and in it which DSCP or PCP value means which profile.

A profile with automap=yes makes a dynamic row for its value in either table of the map ``default``. When two
profiles, or a profile and a static row, claim one value, the static row or else the older profile has it;
that, and the ids of dynamic rows, are inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.routeros_emulator.argument_types import Bool, Reference, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.qos import LOSSLESS, MAP, NAMED, PROFILE, ROWS, defaults, state, stays, switched_on
from lab.routeros_emulator.numbers import Ranges, numbers

_MAP_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)
_DYNAMIC_ID = 0x80000000


def _make_fields(key: str, high: int, *more: EmulatedField) -> tuple[EmulatedField, ...]:
    return (
        EmulatedField("map", Reference((MAP,)), "default"),
        EmulatedField(key, Ranges(0, high), required=True),
        *more,
        EmulatedField("profile", Reference((PROFILE,)), required=True),
        EmulatedField("comment", Text(), clears=True),
        EmulatedField("disabled", Bool(), "false"),
    )


def _make_table(path: str, key: str, fields: tuple[EmulatedField, ...]) -> EmulatedMenu:
    def check(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
        mine = set(numbers(row.values[key]))
        for other in device.store.rows(path):
            if other.id == row.id or other.values["map"] != row.values["map"]:
                continue
            same = other.values.get("dei-only") == row.values.get("dei-only")
            if same and mine & set(numbers(other.values[key])):
                raise failure("already have such entry")

    return EmulatedMenu(
        path,
        fields,
        verbs=ROWS,
        first_id=0,
        check=check,
        show=_show_row,
        dynamic=_make_automap(path, key, {"dei-only": "false"} if key == "pcp" else {}),
    )


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    """A row whose profile or map is disabled does nothing; inferred."""
    shown = state(0, numbered=False)(device, row) | {"dynamic": "false"}
    named = [device.store.find(path, row.values[key]) for path, key in ((PROFILE, "profile"), (MAP, "map"))]
    if any(found is None or found.values["disabled"] == "true" for found in named):
        shown |= {"inactive": "true", "hw-offloaded": "false"}
    return shown


def _make_automap(path: str, key: str, more: Values) -> Callable[[EmulatedDevice], Iterator[Values]]:
    def rows(device: EmulatedDevice) -> Iterator[Values]:
        if device.version < LOSSLESS:
            return
        static = [row.values for row in device.store.rows(path)]
        in_force = [row for row in static if row["map"] == "default" and row["disabled"] == "false"]
        taken = {number for row in in_force for number in numbers(row[key])}
        for profile in device.store.rows(PROFILE):
            value = profile.values[key]
            if profile.values["disabled"] == "true" or profile.values["automap"] == "false" or int(value) in taken:
                continue
            taken.add(int(value))
            row = {".id": f"*{_DYNAMIC_ID + profile.id:X}", "map": "default", key: value, **more}
            flags = {"default": "true" if profile.id == 0 else "false", "dynamic": "true", "disabled": "false"}
            yield row | {"profile": profile.values["name"], **flags, "inactive": "false", "hw-offloaded": "true"}

    return rows


QOS_MAP = EmulatedMenu(
    MAP,
    _MAP_FIELDS,
    verbs=ROWS,
    named_by="name",
    unique=NAMED,
    first_id=0,
    factory=lambda _device: [defaults(_MAP_FIELDS) | {"name": "default"}],
    show=state(1),
    check=switched_on(1),
    keep=stays(1),
)
MAP_IP = _make_table(f"{MAP}/ip", "dscp", _make_fields("dscp", 63))
MAP_VLAN = _make_table(f"{MAP}/vlan", "pcp", _make_fields("pcp", 7, EmulatedField("dei-only", Bool(), "false")))
