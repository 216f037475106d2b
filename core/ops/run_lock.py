"""Lock of the rack: a file on the head node that names the run which changes the rack. A restart of that node removes
it.

A run renews its lock while it lives. The node stores the time of that by its own clock since its start, so neither an
operator's clock nor a changed clock counts. A lock that was not renewed for EXPIRED seconds is ended by the next run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import printable_line
from core.ops.run_context import run_value
from core.util.command_error import CommandError
from core.util.provenance import operator

if TYPE_CHECKING:
    from pyinfra.api.state import State

FOLDER = "/run/sparkrack"
PATH = f"{FOLDER}/run.lock"
HELD, GONE = 3, 4
"""Exit codes of the scripts: another run holds the lock, and the lock file is printed in base64, then its age; no run
holds it.
"""
_TRIES = 3
BEAT = 20
"""Seconds between two renewals of a lock."""
EXPIRED = 120
"""Seconds without a renewal after which a lock has expired: no node keeps a change pending for so long, and five
renewals in a row may be lost.
"""
INHERITED = "SPARKRACK_RUN_LOCK"
"""Set in the environment of a command that another command of sparkrack runs under its own lock: the content of the
lock file."""
UNREADABLE = "unknown"
"""The ID of the holder if the lock file cannot be read."""

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


class LockError(CommandError):
    """Another run changes the rack, or the lock could not be taken. The text names operator, start time and scope.
    `dead`: the ID of the run that has the lock, if it is dead; else empty."""

    def __init__(self, text: str, dead: str = "") -> None:
        super().__init__(text)
        self.dead = dead


@dataclass(frozen=True)
class Holder:
    """The run that holds the lock. `id`: of the run. `who`: user@machine. `since`: ISO 8601, UTC. `what`: its hosts and
    roles. `process`: its boot, process namespace, number and start, as the kernel of its machine names them. `beat`:
    seconds between two renewals; 0: it does not renew its lock. All of it prints on one line.
    """

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
        """Message for another run while this run is active, or before its lock is ended."""
        if self.dead:
            return f"{self} is dead, its process on this machine is gone; to end its lock: sparkrack unlock {self.id}"
        return f"the rack is locked by {self}; if that run is dead: sparkrack unlock {self.id}"

    @property
    def unlockable(self) -> str:
        """The ID for `sparkrack unlock` if the run is dead; else empty."""
        return self.id if self.dead else ""

    @property
    def dead(self) -> bool:
        """Return whether the run was on this machine and its process is gone. False if unknown."""
        here, _, process = self.process.rpartition(" ")[0].rpartition(" ")
        if not here or here != _boot_and_process():
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
    """Return the start time of a process, in the kernel's count; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *more = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else more[18]


def _boot_and_process() -> str:
    """Return an identifier of this boot of this machine and of the process namespace; empty outside Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _describe_process() -> str:
    here, start = _boot_and_process(), born(os.getpid())
    return f"{here} {os.getpid()} {start}" if here and start else ""


def inherited() -> Holder | None:
    """The run that holds the lock and has started this command; None for a command that takes the lock for itself."""
    text = os.environ.get(INHERITED)
    return holder(text) if text else None


def new_holder(what: str) -> Holder:
    """Create the holder for a new run of the current operator."""
    now = datetime.now(UTC)
    run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    who = _shorten_text(operator())
    return Holder(run, who, now.isoformat(timespec="seconds"), _shorten_text(what), _describe_process(), BEAT)


def _shorten_text(text: str) -> str:
    text = printable_line(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def holder(text: str) -> Holder:
    """Parse a lock file. An invalid file still means that the rack is held, so nothing is raised."""
    try:
        values = json.loads(text)
        if isinstance(values, Mapping) and _ID.fullmatch(values["id"]):
            words = {key: _shorten_text(values[key]) for key in ("id", "who", "since", "what")}
            process, beat = values.get("process", ""), values.get("beat", 0)
            known = isinstance(process, str) and _PROCESS.fullmatch(process)
            return Holder(**words, process=process if known else "", beat=beat if beat == BEAT else 0)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return Holder(UNREADABLE, "an unknown operator", "an unknown time", f"{PATH} cannot be read")


def content(output: str) -> bytes:
    """The lock file in what a script printed."""
    try:
        return base64.b64decode(output.partition(_AGE)[0])
    except ValueError:
        return b""


def describe_holder(output: str) -> Holder:
    """Parse the holder from the output of a script."""
    return holder(content(output).decode(errors="replace"))


def silence_seconds(output: str) -> int:
    """Return the seconds since the lock was renewed, from the output of a script; 0 if unknown."""
    age = output.partition(_AGE)[2].strip()
    return int(age) if age.isascii() and age.isdigit() else 0


def expired(output: str) -> bool:
    """Return whether the lock in the output of a script has expired."""
    return bool(describe_holder(output).beat) and silence_seconds(output) > EXPIRED


def take(own: Holder) -> tuple[str, str]:
    """The script that takes the lock, and its input. It ends with HELD if there is a lock file, whatever is in it.

    The file gets its name with its content in it, by a hard link: of two that try at the same time one fails.
    """
    script = (
        f"set -eu; umask 022; mkdir -p {FOLDER}; new=$(mktemp {FOLDER}/.run.XXXXXX); trap 'rm -f \"$new\"' EXIT; "
        f'base64 -d > "$new"; chmod 644 "$new"; {_UPTIME}; touch -d "@$up" "$new"; '
        f'if ! why=$(ln -T "$new" {PATH} 2>&1); then '
        f'{_THERE} || {{ echo "$why" >&2; exit 1; }}; {_TELL}; exit {HELD}; fi'
    )
    return script, base64.b64encode(own.text.encode()).decode()


def read_script() -> str:
    """Return the script that prints the lock file in base64 and its age; it ends with GONE if there is none."""
    return f"{_THERE} || exit {GONE}; {_TELL}"


def lock_query() -> str:
    """Return the script that prints the lock file as it is, and its age; `parse_lock_query` parses it."""
    return f'{_THERE} || exit {GONE}; {_SINCE}; {_SHOW}; echo; echo "{_AGE}$age"'


def parse_lock_query(output: str) -> tuple[Holder, bool]:
    """Parse the holder from the output of the query script, and whether its lock has expired."""
    text, _, age = output.rpartition(_AGE)
    found, silence = holder(text), age.strip()
    return found, bool(found.beat) and silence.isascii() and silence.isdigit() and int(silence) > EXPIRED


def renew(found: bytes) -> str:
    """The script that renews the lock if its content is `found`. Ends with HELD if it is another, with GONE if there is
    none."""
    touch = f'{_UPTIME}; touch -cd "@$up" {PATH}'
    return f"{_THERE} || exit {GONE}; if {_lock_is_unchanged(found)}; then {touch}; else {_TELL}; exit {HELD}; fi"


def release(found: bytes, after: int | None = None) -> str:
    """Return the script that removes the lock file if its content is `found`. Ends with HELD if it is another, with
    GONE if there is none. `after`: only if it was not renewed for more seconds than that.

    Otherwise, of two runs that end the lock of a dead run, the second would end the lock that the first has just taken.
    """
    late = "" if after is None else f' && {{ {_SINCE}; [ "$age" -gt {after} ]; }}'
    return (
        f"{_THERE} || exit {GONE}; exec 9< {FOLDER}; flock -w 10 9 || exit 1; {_THERE} || exit {GONE}; "
        f"if {_lock_is_unchanged(found)}{late}; then rm -f {PATH}; else {_TELL}; exit {HELD}; fi"
    )


def _lock_is_unchanged(found: bytes) -> str:
    digest = hashlib.sha256(found[:_SIZE]).hexdigest()
    return f'[ "$({_SHOW} | sha256sum)" = "{digest}  -" ]'


Run = Callable[[str, str | None], tuple[int, str]]
"""Runs a script on the head node, with an input if it has one: how it ended, and what it printed."""


def acquire(head: str, own: Holder, run: Run, agreed: Callable[[Holder], bool], say: Callable[[str], None]) -> None:
    """Take the lock; an expired one is ended before, as reported to `say`, and that of a dead run of this machine if
    `agreed`. Raises LockError when it cannot be taken.
    """
    fault, dead = "", ""
    for _ in range(_TRIES):
        code, output = run(*take(own))
        why = acquire_error(head, own, code, output)
        if why is None:
            return
        fault = why
        dead = describe_holder(output).unlockable if code == HELD else ""
        if code == HELD and expired(output):
            code, _ = run(release(content(output), after=EXPIRED), None)
            if code == 0:
                say(f"{describe_holder(output)} has not renewed its lock for {silence_seconds(output)} s; it is ended")
        elif code == HELD and describe_holder(output).dead and agreed(describe_holder(output)):
            run(release(content(output)), None)
        else:
            break
    raise LockError(fault, dead)


def acquire_error(head: str, own: Holder, code: int, output: str) -> str | None:
    """Return why the lock was not taken, from the result of the script that takes it; None if it was."""
    if code == 0:
        return None
    if code == HELD:
        other = describe_holder(output)
        return None if other == own else other.busy  # after a lost answer the lock is still ours
    why = printable_line(output.strip()) or f"exit {code}"
    return f"{head}: the lock of the rack cannot be taken: {why}; nothing was changed"


def release_error(head: str, own: Holder, code: int, output: str) -> str | None:
    """Return the problem with the lock at the end of a run, from the result of the script that releases it; None if
    there is none.
    """
    if code == 0:
        return None
    warning = "another run may have changed the rack in between"
    if code == GONE:
        return f"{head}: the lock was gone before the end, by a restart or by `sparkrack unlock`; {warning}"
    if code == HELD:
        return f"{head}: the lock is now that of {describe_holder(output)}; {warning}"
    why = printable_line(output.strip()) or f"exit {code}"
    return f"{head}: the lock could not be released ({why}); sparkrack unlock {own.id}"


@dataclass
class _OwnLock:
    """The ID of the run that holds the lock for this one, and why it no longer does."""

    run: str | None = None
    lost: Callable[[], str] = lambda: ""


def register_run(state: State, run: str, lost: Callable[[], str] = lambda: "") -> None:
    """Note that this pyinfra run is the one that holds the lock as `run`. `lost`: returns why it no longer
    holds the lock; empty while it does."""
    own = run_value(state, _OwnLock)
    own.run, own.lost = run, lost


def lost(state: State) -> str:
    """Why this pyinfra run must send nothing more: it has lost its lock. Empty while it holds it, or runs without."""
    return run_value(state, _OwnLock).lost()


def expiry_reason(head: str, silence: float) -> str:
    """Why a run has lost the lock that it last renewed `silence` seconds ago; empty as long as the lock counts."""
    if silence < EXPIRED:
        return ""
    return f"{head}: the lock could not be renewed for {silence:.0f} s, so another run may have taken it"


def clock() -> float:
    """Seconds by a clock of this machine that also counts while the machine sleeps: during that time the lock
    expires on the head node. `time.monotonic` stands still then on Linux."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def other_holder(state: State, text: str | None) -> Holder | None:
    """Return the other holder of the rack during this run, from the lock file's content (None: no file); None if there
    is no other. The command that has started this one is none.
    """
    if text is None:
        return None
    found = holder(text)
    return None if found.id == run_value(state, _OwnLock).run or found == inherited() else found
