"""Removal of a rollback timer's rows from the switch."""

from __future__ import annotations

from core.routeros.errors import SentenceError
from core.routeros.menus import SCHEDULER, SCRIPT
from core.routeros.rollback_timer import LOG_MARK, acting_message, is_timer
from core.routeros.session import Client, SwitchConnection


def disarm(line: Client, name: str) -> None:
    """Remove the schedule, then the script, of one run; what is gone already is not an error. Raises SwitchError."""
    for menu in (SCHEDULER, SCRIPT):
        if ids := _row_ids(line, menu.path, name):
            try:
                line.talk(f"{menu.path}/remove", f"=.id={','.join(ids)}")
            except SentenceError:
                # A timer that fired in the meantime has removed its own rows.
                if _row_ids(line, menu.path, name):
                    raise


def disarm_others(line: SwitchConnection) -> None:
    """Remove what runs that were killed left armed: it would undo this run in the middle of it.

    Safe mode must be free, or the run that armed it may still live. Raises SwitchError.
    """
    for name in armed_timer_names(line):
        line.say(f"an earlier run was not finished and left {name} on the switch; this run takes over")
        disarm(line, name)


def armed_timer_names(line: Client) -> tuple[str, ...]:
    """Return the names of all rollback timers on the switch. Raises SwitchError."""
    rows = (*_read_rows(line, SCHEDULER.path), *_read_rows(line, SCRIPT.path))
    return tuple(dict.fromkeys(name for row in rows if is_timer(name := row.get("name", ""))))


def scheduled(line: Client, name: str) -> bool:
    """Return whether the schedule of one run still exists: without it nothing acts by itself. Raises SwitchError."""
    return bool(_row_ids(line, SCHEDULER.path, name))


def log_of(line: Client, name: str) -> tuple[str, ...]:
    """Return the failed lines in the switch's log from the last time that the timer of one run acted. Raises
    SwitchError.
    """
    rows = line.talk("/log/print", "=.proplist=time,message")
    lines = [(row.get("time", ""), row.get("message", "")) for row in rows]
    begins = [at for at, (_, message) in enumerate(lines) if message == acting_message(name)]
    after = lines[begins[-1] + 1 :] if begins else ()
    return tuple(f"{time} {message}".strip() for time, message in after if message.startswith(LOG_MARK))


def _row_ids(line: Client, path: str, name: str) -> list[str]:
    return [row[".id"] for row in _read_rows(line, path) if row.get("name") == name]


def _read_rows(line: Client, path: str) -> list[dict[str, str]]:
    return [dict(row) for row in line.talk(f"{path}/print", "=.proplist=.id,name")]
