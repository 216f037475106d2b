"""/interface/ethernet/switch/qos/map, and in it which DSCP or PCP value means which profile.

A profile with automap=yes makes a dynamic row for its value in either table of the map ``default``. When two
profiles, or a profile and a static row, claim one value, the static row or else the older profile has it;
that, and the ids of dynamic rows, are inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..device import Device
from ..errors import failure
from ..kinds import Bool, Reference, Text
from ..menu import Field, Menu, Row, Values
from ..numbers import Ranges, numbers
from .qos import LOSSLESS, MAP, NAMED, PROFILE, ROWS, defaults, state, stays, switched_on

_MAP_FIELDS = (
    Field("name", Text(), required=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
)
_DYNAMIC_ID = 0x80000000


def _fields(key: str, high: int, *more: Field) -> tuple[Field, ...]:
    return (
        Field("map", Reference((MAP,)), "default"),
        Field(key, Ranges(0, high), required=True),
        *more,
        Field("profile", Reference((PROFILE,)), required=True),
        Field("comment", Text(), clears=True),
        Field("disabled", Bool(), "false"),
    )


def _table(path: str, key: str, fields: tuple[Field, ...]) -> Menu:
    def check(device: Device, row: Row, _old: Row | None) -> None:
        mine = set(numbers(row.values[key]))
        for other in device.store.rows(path):
            if other.id == row.id or other.values["map"] != row.values["map"]:
                continue
            same = other.values.get("dei-only") == row.values.get("dei-only")
            if same and mine & set(numbers(other.values[key])):
                raise failure("already have such entry")

    return Menu(
        path,
        fields,
        verbs=ROWS,
        first_id=0,
        check=check,
        show=_show,
        dynamic=_automap(path, key, {"dei-only": "false"} if key == "pcp" else {}),
    )


def _show(device: Device, row: Row) -> Values:
    """A row whose profile or map is disabled does nothing; inferred."""
    shown = state(0, numbered=False)(device, row) | {"dynamic": "false"}
    named = [device.store.find(path, row.values[key]) for path, key in ((PROFILE, "profile"), (MAP, "map"))]
    if any(found is None or found.values["disabled"] == "true" for found in named):
        shown |= {"inactive": "true", "hw-offloaded": "false"}
    return shown


def _automap(path: str, key: str, more: Values) -> Callable[[Device], Iterator[Values]]:
    def rows(device: Device) -> Iterator[Values]:
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


QOS_MAP = Menu(
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
MAP_IP = _table(f"{MAP}/ip", "dscp", _fields("dscp", 63))
MAP_VLAN = _table(f"{MAP}/vlan", "pcp", _fields("pcp", 7, Field("dei-only", Bool(), "false")))
