"""/system/script. Arguments: schema of RouterOS 7.23; running them: script_run.py."""

from __future__ import annotations

import asyncio

from lab.routeros_emulator.argument_types import Bool, Text, Words
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, missing, unknown_parameter
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.permissions import JOB_POLICIES
from lab.routeros_emulator.request import Call, Reply, Stream
from lab.routeros_emulator.script.interpreter import SCRIPT, Course, invalid, script_course
from lab.routeros_emulator.script.lexer import ScriptError

FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("owner", Text()),
    EmulatedField("policy", Words(JOB_POLICIES), ",".join(JOB_POLICIES)),
    EmulatedField("dont-require-permissions", Bool(), "false"),
    EmulatedField("source", Text(), ""),
)


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    key = (SCRIPT, row.id)
    started = {"last-started": device.jobs.last[key]} if key in device.jobs.last else {}
    return started | {"run-count": str(device.jobs.runs[key])} | invalid(device, row)


def _run_script(call: Call) -> Reply | Stream:
    """Run a script; the answer comes when it has ended, over all its waits."""
    given = call.sentence.attributes
    for name in given:
        if name not in ("number", "numbers", ".id", "use-script-permissions"):
            raise unknown_parameter(name)
    wanted = given.get("number") or given.get("numbers") or given.get(".id")
    if not wanted:
        raise missing("number")
    own = "use-script-permissions" in given
    course = script_course(call.device, call.client, wanted, own_permissions=own)
    wait = _go_to_next_wait(course)
    return Reply() if wait is None else _wait_for_end(course, wait)


def _go_to_next_wait(course: Course) -> float | None:
    """Go on to the next wait; None at the end."""
    try:
        return next(course, None)
    except ScriptError as error:
        raise failure(str(error)) from None


async def _wait_for_end(course: Course, wait: float | None) -> Stream:
    """Wait for the end; there are no rows to give on the way."""
    nothing: tuple[Values, ...] = ()
    while wait is not None:
        await asyncio.sleep(wait)
        wait = _go_to_next_wait(course)
    for row in nothing:
        yield row


SCRIPT_MENU = EmulatedMenu(
    SCRIPT,
    FIELDS,
    verbs=FULL - {"enable", "disable"},
    named_by="name",
    unique=((("name",), "already have such entry"),),
    stamp=lambda call: {"owner": call.client.user},
    show=_show_row,
    actions={"run": _run_script},
)
