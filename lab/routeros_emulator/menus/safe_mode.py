"""/safe-mode and /system/history."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import no_match, unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu, Values
from lab.routeros_emulator.print_verbs import narrow
from lab.routeros_emulator.request import Call, Reply


def _take_safe_mode(call: Call) -> Reply:
    given = call.sentence.attributes
    _allow_only(call, "on-error")
    on_error = given.get("on-error", "ask")
    if on_error not in ("abort", "ask", "release", "unroll"):
        raise no_match("on-error")
    call.device.safe_mode.take(call.client, on_error)
    return Reply()


def _release_safe_mode(call: Call) -> Reply:
    _allow_only(call)
    call.device.safe_mode.release(call.client)
    return Reply()


def _unroll_safe_mode(call: Call) -> Reply:
    _allow_only(call)
    call.device.safe_mode.give_up(call.client)
    return Reply()


def _allow_only(call: Call, *names: str) -> None:
    for name in call.sentence.attributes:
        if name not in names:
            raise unknown_parameter(name)


def _print_state(call: Call) -> Reply:
    """Print one row: whether a session holds it, which one, and whether it is this session."""
    holder = call.device.safe_mode.holder
    row = {"enabled": "false", "current": "false"}
    if holder is not None:
        row = {"enabled": "true", "user": holder.user, "current": "false", "owner": holder.owner}
        row["current"] = "true" if holder is call.client else "false"
    return Reply(rows=[narrow(row, call.sentence.attributes)])


def _list_history(device: EmulatedDevice) -> Iterator[Values]:
    """The actions that can be undone, newest first."""
    for number, action in reversed(device.history.actions):
        flags = {"undoable": "true", "redoable": "false", "floating-undo": "false"}
        action_fields = {"action": action.text, "by": action.by, "policy": "write", "time": action.time}
        yield {".id": f"*{number:X}", **flags, **action_fields}


# Scripts and the API have it since 7.18; before, only a console's control key.
SAFE_MODE = EmulatedMenu(
    "/safe-mode",
    since=(7, 18),
    verbs=frozenset(),
    singleton=True,
    rows=lambda _device: (),
    actions={
        "print": _print_state,
        "getall": _print_state,
        "take": _take_safe_mode,
        "release": _release_safe_mode,
        "unroll": _unroll_safe_mode,
    },
    protected=frozenset({"take", "release", "unroll"}),
)
HISTORY = EmulatedMenu("/system/history", rows=_list_history)
