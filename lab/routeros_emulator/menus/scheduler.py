"""/system/scheduler. Arguments: schema of RouterOS 7.23; running the rows: schedule.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lab.routeros_emulator import clock
from lab.routeros_emulator.argument_types import Bool, Duration, Text, Words
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.permissions import JOB_POLICIES
from lab.routeros_emulator.request import Call
from lab.routeros_emulator.scheduler import DAYS, SCHEDULER


@dataclass(frozen=True)
class Moment:
    """A date or a time of day in any of some forms, printed in the first; or one of some words."""

    forms: tuple[str, ...]
    words: tuple[str, ...] = ()

    def parse(self, argument: str, text: str) -> str:
        if text in self.words:
            return text
        for form in self.forms:
            try:
                return datetime.strptime(text, form).strftime(self.forms[0])
            except ValueError:
                continue
        raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE)


DATE = Moment(("%Y-%m-%d", "%b/%d/%Y"))
TIME = ("%H:%M:%S", "%H:%M")

FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("start-date", DATE),
    EmulatedField("start-time", Moment(TIME, ("startup",))),
    EmulatedField("interval", Duration(), "0s"),
    EmulatedField("days", Words(DAYS), "", since=(7, 24)),
    EmulatedField("on-event", Text(), ""),
    # The default of a row without a value is inferred.
    EmulatedField("policy", Words(JOB_POLICIES), "read,write,test"),
)


def _stamp_owner(call: Call) -> Values:
    """The owner, and the moment of the addition: a row without a start time runs one interval later."""
    now = call.device.clock.now()
    return {"owner": call.client.user, "start-date": f"{now:%Y-%m-%d}", "start-time": f"{now:%H:%M:%S}"}


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    due = device.schedule.next_run(row.id)
    shown = {"run-count": str(device.jobs.runs[SCHEDULER, row.id])}
    return shown if due is None else {"next-run": clock.spell(due.astimezone(device.clock.zone)), **shown}


SCHEDULER_MENU = EmulatedMenu(
    SCHEDULER,
    FIELDS,
    verbs=FULL,
    named_by="name",
    unique=((("name",), "already have such entry"),),
    stamp=_stamp_owner,
    show=_show_row,
)
