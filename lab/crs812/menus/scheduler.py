"""/system/scheduler. Arguments: schema of RouterOS 7.23; running the rows: schedule.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .. import clock
from ..call import Call
from ..device import Device
from ..errors import ARGUMENT_VALUE, TrapError
from ..kinds import Bool, Duration, Text, Words
from ..menu import FULL, Field, Menu, Row, Values
from ..permissions import JOB_POLICIES
from ..schedule import DAYS, SCHEDULER


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
    Field("name", Text(), required=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("start-date", DATE),
    Field("start-time", Moment(TIME, ("startup",))),
    Field("interval", Duration(), "0s"),
    Field("days", Words(DAYS), "", since=(7, 24)),
    Field("on-event", Text(), ""),
    # What a row gets that names none is inferred.
    Field("policy", Words(JOB_POLICIES), "read,write,test"),
)


def _stamp(call: Call) -> Values:
    """The owner, and the moment of the addition: a row without a start time runs one interval later."""
    now = call.device.clock.now()
    return {"owner": call.client.user, "start-date": f"{now:%Y-%m-%d}", "start-time": f"{now:%H:%M:%S}"}


def _show(device: Device, row: Row) -> Values:
    due = device.schedule.next_run(row.id)
    shown = {"run-count": str(device.jobs.runs[SCHEDULER, row.id])}
    return shown if due is None else {"next-run": clock.spell(due.astimezone(device.clock.zone)), **shown}


SCHEDULER_MENU = Menu(
    SCHEDULER,
    FIELDS,
    verbs=FULL | {"listen"},
    named_by="name",
    unique=((("name",), "already have such entry"),),
    stamp=_stamp,
    show=_show,
)
