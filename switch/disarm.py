"""Taking a dead man's rows off the switch."""

from __future__ import annotations

from .deadman import LOG_MARK, PREFIX, acting
from .errors import SentenceError
from .line import Line, Talker
from .menus import SCHEDULER, SCRIPT


def disarm(line: Talker, name: str) -> None:
    """Remove the schedule, then the script, of one run; what is gone already is no error. Raises SwitchError."""
    for menu in (SCHEDULER, SCRIPT):
        if ids := _ids(line, menu.path, name):
            try:
                line.talk(f"{menu.path}/remove", f"=.id={','.join(ids)}")
            except SentenceError:
                # One that acted in the meantime has removed its own rows.
                if _ids(line, menu.path, name):
                    raise


def disarm_others(line: Line) -> None:
    """Remove what runs that were killed left armed: it would undo this run in the middle of it.

    Safe mode must be free, or the run that armed it may still live. Raises SwitchError.
    """
    for name in armed(line):
        line.say(f"an earlier run was not finished and left {name} on the switch; this run takes over")
        disarm(line, name)


def armed(line: Talker) -> tuple[str, ...]:
    """The names of all dead men on the switch. Raises SwitchError."""
    rows = (*_rows(line, SCHEDULER.path), *_rows(line, SCRIPT.path))
    return tuple(dict.fromkeys(name for row in rows if (name := row.get("name", "")).startswith(PREFIX)))


def scheduled(line: Talker, name: str) -> bool:
    """Whether the schedule of one run is still there: without it nothing acts by itself. Raises SwitchError."""
    return bool(_ids(line, SCHEDULER.path, name))


def log_of(line: Talker, name: str) -> tuple[str, ...]:
    """What the switch's log says of the last time that the timer of one run acted: the lines that failed. Raises
    SwitchError."""
    rows = line.talk("/log/print", "=.proplist=time,message")
    lines = [(row.get("time", ""), row.get("message", "")) for row in rows]
    begins = [at for at, (_, message) in enumerate(lines) if message == acting(name)]
    after = lines[begins[-1] + 1 :] if begins else ()
    return tuple(f"{time} {message}".strip() for time, message in after if message.startswith(LOG_MARK))


def _ids(line: Talker, path: str, name: str) -> list[str]:
    return [row[".id"] for row in _rows(line, path) if row.get("name") == name]


def _rows(line: Talker, path: str) -> list[dict[str, str]]:
    return [dict(row) for row in line.talk(f"{path}/print", "=.proplist=.id,name")]
