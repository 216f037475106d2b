"""One run at a time: a file on the head node that says who changes the rack. Gone after a restart of that node."""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sparkrack.fleet.errors import one_line

if TYPE_CHECKING:
    from pyinfra.api.state import State

FOLDER = "/run/sparkrack"
PATH = f"{FOLDER}/run.lock"
HELD, GONE = 3, 4
"""Exit codes of the scripts: somebody else holds it, and the lock file is printed in base64; nobody holds it."""
UNREADABLE = "unknown"
"""The ID of whoever holds the rack by a lock file that cannot be read."""

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_LONGEST = 200
_SIZE = 4096
_THERE = f"[ -e {PATH} ] || [ -L {PATH} ]"
_SHOW = f"head -c {_SIZE} {PATH} 2>/dev/null"


class LockError(Exception):
    """Somebody else changes the rack, or the lock could not be taken. The text says who, since when and what."""


@dataclass(frozen=True)
class Holder:
    """Whoever changes the rack. `id`: of the run. `who`: user@machine. `since`: ISO 8601, UTC. `what`: which machines
    and roles. All of it prints on one line."""

    id: str
    who: str
    since: str
    what: str

    def __str__(self) -> str:
        return f"run {self.id} of {self.who}, since {self.since} ({self.what})"

    @property
    def text(self) -> str:
        """The lock file's content."""
        return json.dumps(asdict(self)) + "\n"

    @property
    def busy(self) -> str:
        """What is said to somebody who comes while this run goes on."""
        return f"{self} changes the rack; when that run is gone: sparkrack unlock {self.id}"


def me(what: str) -> Holder:
    """A new run of whoever calls this."""
    now = datetime.now(UTC)
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in a container
        user = str(os.getuid())
    run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    return Holder(run, _short(f"{user}@{socket.gethostname()}"), now.isoformat(timespec="seconds"), _short(what))


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def holder(text: str) -> Holder:
    """Who stands in a lock file. Whatever else is in it, somebody holds the rack, so nothing is raised."""
    try:
        said = json.loads(text)
        if isinstance(said, Mapping) and _ID.fullmatch(said["id"]):
            return Holder(**{key: _short(said[key]) for key in ("id", "who", "since", "what")})
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return Holder(UNREADABLE, "somebody", "an unknown time", f"{PATH} cannot be read")


def content(said: str) -> bytes:
    """The lock file in what a script printed."""
    try:
        return base64.b64decode(said)
    except ValueError:
        return b""


def told(said: str) -> Holder:
    """Who holds the rack by what a script printed."""
    return holder(content(said).decode(errors="replace"))


def take(mine: Holder) -> tuple[str, str]:
    """The script that takes the lock, and its input. It ends with HELD if there is a lock file, whatever is in it.

    The file gets its name with its content in it, by a hard link: of two that try at the same time one fails.
    """
    script = (
        f"set -eu; umask 022; mkdir -p {FOLDER}; new=$(mktemp {FOLDER}/.run.XXXXXX); trap 'rm -f \"$new\"' EXIT; "
        f'base64 -d > "$new"; chmod 644 "$new"; if ! why=$(ln -T "$new" {PATH} 2>&1); then '
        f'{_THERE} || {{ echo "$why" >&2; exit 1; }}; {_SHOW} | base64; exit {HELD}; fi'
    )
    return script, base64.b64encode(mine.text.encode()).decode()


def look() -> str:
    """The script that prints the lock file in base64; it ends with GONE if there is none."""
    return f"{_THERE} || exit {GONE}; {_SHOW} | base64"


def release(found: bytes) -> str:
    """The script that removes the lock file if its content is `found`. Ends with HELD if it is another, with GONE if
    there is none."""
    digest = hashlib.sha256(found[:_SIZE]).hexdigest()
    return (
        f'{_THERE} || exit {GONE}; if [ "$({_SHOW} | sha256sum)" = "{digest}  -" ]; then rm -f {PATH}; '
        f"else {_SHOW} | base64; exit {HELD}; fi"
    )


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
