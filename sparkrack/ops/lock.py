"""One run at a time: a file on the head node that says who changes the rack. Gone after a restart of that node.

A run renews its lock while it lives. The node keeps the time of that, by its own clock since its start, so neither an
operator's clock nor one that is set counts. A lock that was not renewed for EXPIRED seconds is ended by the next run.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sparkrack.fleet.errors import one_line

if TYPE_CHECKING:
    from pyinfra.api.state import State

FOLDER = "/run/sparkrack"
PATH = f"{FOLDER}/run.lock"
HELD, GONE = 3, 4
"""Exit codes of the scripts: somebody else holds it, and the lock file is printed in base64, then its age; nobody holds
it."""
_TRIES = 3
BEAT = 20
"""Seconds between two renewals of a lock."""
EXPIRED = 120
"""Seconds without a renewal after which a lock does not count any more: no node keeps a change on trial for so long,
and five renewals in a row may be lost."""
UNREADABLE = "unknown"
"""The ID of whoever holds the rack by a lock file that cannot be read."""

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_PROCESS = re.compile(r"[0-9a-f-]{1,64} pid:\[\d{1,20}\] \d{1,10} \d{1,20}")
_LONGEST = 200
_SIZE = 4096
_THERE = f"[ -e {PATH} ] || [ -L {PATH} ]"
_SHOW = f"head -c {_SIZE} {PATH} 2>/dev/null"
_AGE = "age:"
"""Stands before the seconds since the latest renewal, on a line after the lock file; no base64 has a colon."""
# The file's time is the node's uptime when it was renewed. Of another version's it is later, so that never expires.
_UPTIME = "{ read -r up _ < /proc/uptime; } 2>/dev/null || up=0; up=${up%%.*}"
_SINCE = f"{_UPTIME}; age=$((up - $(stat -c %Y {PATH} 2>/dev/null || echo $up)))"
_TELL = f'{_SINCE}; {_SHOW} | base64; echo "{_AGE}$age"'


class LockError(Exception):
    """Somebody else changes the rack, or the lock could not be taken. The text says who, since when and what."""


@dataclass(frozen=True)
class Holder:
    """Whoever changes the rack. `id`: of the run. `who`: user@machine. `since`: ISO 8601, UTC. `what`: which machines
    and roles. `process`: its boot, process namespace, number and start, as the kernel of its machine names them.
    `beat`: seconds between two renewals; 0: it does not renew its lock. All of it prints on one line."""

    id: str
    who: str
    since: str
    what: str
    process: str = ""
    beat: int = 0

    def __str__(self) -> str:
        return f"run {self.id} of {self.who}, since {self.since} ({self.what})"

    @property
    def text(self) -> str:
        """The lock file's content."""
        return json.dumps(asdict(self)) + "\n"

    @property
    def busy(self) -> str:
        """What is said to somebody who comes while this run goes on, or before its lock is ended."""
        if self.dead:
            return f"{self} is dead, its process on this machine is gone; to end its lock: sparkrack unlock {self.id}"
        return f"{self} changes the rack; when that run is gone: sparkrack unlock {self.id}"

    @property
    def dead(self) -> bool:
        """Whether it ran on this machine and its process is gone. False if that cannot be told."""
        here, _, process = self.process.rpartition(" ")[0].rpartition(" ")
        if not here or here != _here():
            return False
        pid = int(process)
        if born(pid) is not None:
            return born(pid) != self.process.rpartition(" ")[2]
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # another user's, which /proc may hide
        return True  # it has ended, and its parent has not asked how


def born(pid: int) -> str | None:
    """When a process began, as the kernel counts; None when there is none, or it has ended and nobody asked how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *more = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else more[18]


def _here() -> str:
    """What names this boot of this machine, and who sees which processes there; empty outside Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process() -> str:
    here, start = _here(), born(os.getpid())
    return f"{here} {os.getpid()} {start}" if here and start else ""


def me(what: str) -> Holder:
    """A new run of whoever calls this."""
    now = datetime.now(UTC)
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in a container
        user = str(os.getuid())
    run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    who = _short(f"{user}@{socket.gethostname()}")
    return Holder(run, who, now.isoformat(timespec="seconds"), _short(what), _process(), BEAT)


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def holder(text: str) -> Holder:
    """Who stands in a lock file. Whatever else is in it, somebody holds the rack, so nothing is raised."""
    try:
        said = json.loads(text)
        if isinstance(said, Mapping) and _ID.fullmatch(said["id"]):
            words = {key: _short(said[key]) for key in ("id", "who", "since", "what")}
            process, beat = said.get("process", ""), said.get("beat", 0)
            known = isinstance(process, str) and _PROCESS.fullmatch(process)
            return Holder(**words, process=process if known else "", beat=beat if beat == BEAT else 0)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return Holder(UNREADABLE, "somebody", "an unknown time", f"{PATH} cannot be read")


def content(said: str) -> bytes:
    """The lock file in what a script printed."""
    try:
        return base64.b64decode(said.partition(_AGE)[0])
    except ValueError:
        return b""


def told(said: str) -> Holder:
    """Who holds the rack by what a script printed."""
    return holder(content(said).decode(errors="replace"))


def silent(said: str) -> int:
    """Seconds since the lock was renewed by what a script printed; 0 when that cannot be told."""
    age = said.partition(_AGE)[2].strip()
    return int(age) if age.isascii() and age.isdigit() else 0


def expired(said: str) -> bool:
    """Whether the lock that a script printed does not count any more."""
    return bool(told(said).beat) and silent(said) > EXPIRED


def take(mine: Holder) -> tuple[str, str]:
    """The script that takes the lock, and its input. It ends with HELD if there is a lock file, whatever is in it.

    The file gets its name with its content in it, by a hard link: of two that try at the same time one fails.
    """
    script = (
        f"set -eu; umask 022; mkdir -p {FOLDER}; new=$(mktemp {FOLDER}/.run.XXXXXX); trap 'rm -f \"$new\"' EXIT; "
        f'base64 -d > "$new"; chmod 644 "$new"; {_UPTIME}; touch -d "@$up" "$new"; '
        f'if ! why=$(ln -T "$new" {PATH} 2>&1); then '
        f'{_THERE} || {{ echo "$why" >&2; exit 1; }}; {_TELL}; exit {HELD}; fi'
    )
    return script, base64.b64encode(mine.text.encode()).decode()


def look() -> str:
    """The script that prints the lock file in base64 and its age; it ends with GONE if there is none."""
    return f"{_THERE} || exit {GONE}; {_TELL}"


def glance() -> str:
    """The same with the lock file as it is; `glanced` understands it."""
    return f'{_THERE} || exit {GONE}; {_SINCE}; {_SHOW}; echo; echo "{_AGE}$age"'


def glanced(said: str) -> tuple[Holder, bool]:
    """Who holds the rack by what `glance` printed, and whether that has expired."""
    text, _, age = said.rpartition(_AGE)
    found, silence = holder(text), age.strip()
    return found, bool(found.beat) and silence.isascii() and silence.isdigit() and int(silence) > EXPIRED


def renew(found: bytes) -> str:
    """The script that renews the lock if its content is `found`. Ends with HELD if it is another, with GONE if there is
    none."""
    touch = f'{_UPTIME}; touch -cd "@$up" {PATH}'
    return f"{_THERE} || exit {GONE}; if {_is(found)}; then {touch}; else {_TELL}; exit {HELD}; fi"


def release(found: bytes, after: int | None = None) -> str:
    """The script that removes the lock file if its content is `found`. Ends with HELD if it is another, with GONE if
    there is none. `after`: only if it was not renewed for more seconds than that.

    Of two that end the lock of a dead run, the second would else end that which the first has just taken.
    """
    late = "" if after is None else f' && {{ {_SINCE}; [ "$age" -gt {after} ]; }}'
    return (
        f"{_THERE} || exit {GONE}; exec 9< {FOLDER}; flock -w 10 9 || exit 1; {_THERE} || exit {GONE}; "
        f"if {_is(found)}{late}; then rm -f {PATH}; else {_TELL}; exit {HELD}; fi"
    )


def _is(found: bytes) -> str:
    digest = hashlib.sha256(found[:_SIZE]).hexdigest()
    return f'[ "$({_SHOW} | sha256sum)" = "{digest}  -" ]'


Run = Callable[[str, str | None], tuple[int, str]]
"""Runs a script on the head node, with an input if it has one: how it ended, and what it printed."""


def taken(head: str, mine: Holder, run: Run, agreed: Callable[[Holder], bool], say: Callable[[str], None]) -> None:
    """Take the lock; one that has expired is ended before, as `say` is told, and that of a dead run of this machine if
    that is `agreed`. Raises LockError when it cannot be taken."""
    fault = None
    for _ in range(_TRIES):
        code, said = run(*take(mine))
        fault = not_taken(head, mine, code, said)
        if fault is None:
            return
        if code == HELD and expired(said):
            code, _ = run(release(content(said), after=EXPIRED), None)
            if code == 0:
                say(f"{told(said)} has not renewed its lock for {silent(said)} s; it is ended")
        elif code == HELD and told(said).dead and agreed(told(said)):
            run(release(content(said)), None)
        else:
            break
    raise LockError(fault)


def not_taken(head: str, mine: Holder, code: int, said: str) -> str | None:
    """Why the lock was not taken, by how the script that takes it ended; None if it was."""
    if code == 0:
        return None
    if code == HELD:
        other = told(said)
        return None if other == mine else other.busy  # an answer that was lost leaves it taken
    why = one_line(said.strip()) or f"exit {code}"
    return f"{head}: the lock of the rack cannot be taken: {why}; nothing was changed"


def not_given_back(head: str, mine: Holder, code: int, said: str) -> str | None:
    """What is wrong with the lock at the end of a run, by how the script that releases it ended; None if nothing."""
    if code == 0:
        return None
    meanwhile = "another run may have changed the rack meanwhile"
    if code == GONE:
        return f"{head}: the lock was gone before the end, by a restart or by `sparkrack unlock`; {meanwhile}"
    if code == HELD:
        return f"{head}: the lock is now that of {told(said)}; {meanwhile}"
    why = one_line(said.strip()) or f"exit {code}"
    return f"{head}: the lock could not be given back ({why}); sparkrack unlock {mine.id}"


_ours: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def hold(state: State, run: str) -> None:
    """Note that this pyinfra run is the one that holds the lock as `run`."""
    _ours[state] = run


def others(state: State, text: str | None) -> Holder | None:
    """Who holds the rack while this run goes on, by the lock file's content (None: there is none); None for nobody
    else."""
    if text is None:
        return None
    found = holder(text)
    return None if found.id == _ours.get(state) else found
