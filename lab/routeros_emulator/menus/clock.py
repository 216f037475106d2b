"""/system/clock. Arguments: schema of RouterOS 7.23; printed fields: published prints of 7.x units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from zoneinfo import available_timezones

from lab.routeros_emulator import write_verbs
from lab.routeros_emulator.argument_types import Bool
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import no_match
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.scheduler import DATE, TIME, Moment
from lab.routeros_emulator.request import Call, Reply
from lab.routeros_emulator.scheduler import CLOCK


@dataclass(frozen=True)
class Zone:
    """The name of a time zone, or ``manual``."""

    def parse(self, argument: str, text: str) -> str:
        if text != "manual" and text not in available_timezones():
            raise no_match(argument)
        return text


FIELDS = (
    EmulatedField("time-zone-autodetect", Bool(), "true"),
    EmulatedField("time-zone-name", Zone(), "manual"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {"time-zone-autodetect": "true", "time-zone-name": "manual"}


def _show_row(device: EmulatedDevice, _row: EmulatedRow) -> Values:
    now = device.clock.now()
    offset = f"{now:%z}"
    dst = "true" if now.dst() else "false"
    return {
        "time": f"{now:%H:%M:%S}",
        "date": f"{now:%Y-%m-%d}",
        "gmt-offset": f"{offset[:3]}:{offset[3:5]}",
        "dst-active": dst,
    }


def _set_clock(call: Call) -> Reply:
    """The zone is kept; a date or time that is set shifts the clock until the unit restarts (it has no
    battery; that is inferred)."""
    clock = call.device.clock
    given = dict(call.sentence.attributes)
    now = clock.now()
    date, time = given.pop("date", None), given.pop("time", None)
    wanted = " ".join(
        (
            f"{now:%Y-%m-%d}" if date is None else DATE.parse("date", date),
            f"{now:%H:%M:%S}" if time is None else Moment(TIME).parse("time", time),
        )
    )
    reply = write_verbs.change(replace(call, sentence=replace(call.sentence, attributes=given)))
    if date is not None or time is not None:
        moment = datetime.strptime(wanted, "%Y-%m-%d %H:%M:%S").replace(tzinfo=clock.zone)
        clock.shift = moment - datetime.now(UTC)
        call.device.schedule.clock_moved()
    return reply


CLOCK_MENU = EmulatedMenu(
    CLOCK,
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory_rows,
    show=_show_row,
    actions={"set": _set_clock},
)
