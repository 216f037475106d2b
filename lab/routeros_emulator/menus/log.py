"""/log: the unit's own log, kept in memory."""

from __future__ import annotations

from functools import partial

from lab.routeros_emulator.errors import missing, unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.request import Call, Reply


def _write_line(level: str, call: Call) -> Reply:
    for name in call.sentence.attributes:
        if name != "message":
            raise unknown_parameter(name)
    message = call.sentence.attributes.get("message")
    if message is None:
        raise missing("message")
    call.device.tell(f"script,{level}", message)
    return Reply()


LOG = EmulatedMenu(
    "/log",
    rows=lambda device: list(device.log),
    actions={level: partial(_write_line, level) for level in ("debug", "error", "info", "warning")},
)
