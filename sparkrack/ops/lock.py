"""One run at a time: a file on the head node that says who changes the rack. Gone after a reboot of that node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sparkrack.ops.files import encoded
from sparkrack.ops.shell import quote

if TYPE_CHECKING:
    from pyinfra.api.state import State

FOLDER = "/run/sparkrack"
PATH = f"{FOLDER}/run.lock"
HELD = 3
"""Exit code of `take` when somebody else holds it."""


@dataclass(frozen=True)
class Holder:
    """Whoever changes the rack. `id`: of the run. `who`: user@machine. `since`: ISO 8601, UTC. `what`: which machines
    and roles."""

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


def holder(text: str) -> Holder:
    """Who stands in a lock file. Whatever else is in it, somebody holds the rack, so nothing is raised."""
    try:
        said = json.loads(text)
        if isinstance(said, Mapping):
            return Holder(**{key: str(said[key]) for key in ("id", "who", "since", "what")})
    except (ValueError, KeyError):
        pass
    return Holder("unknown", "somebody", "an unknown time", f"{PATH} cannot be read")


def take(mine: Holder) -> tuple[str, str]:
    """The script that takes the lock, and its input. It ends with HELD and prints the lock file if it is held.

    The file gets its name with its content in it, by a hard link: of two that try at the same time one fails.
    """
    script = (
        f"set -eu; umask 022; mkdir -p {FOLDER}; new=$(mktemp {FOLDER}/.run.XXXXXX); trap 'rm -f \"$new\"' EXIT; "
        f'base64 -d > "$new"; chmod 644 "$new"; if ! ln "$new" {PATH} 2>/dev/null; then cat {PATH}; exit {HELD}; fi'
    )
    return script, encoded(mine.text.encode())


def release(run: str) -> str:
    """The script that gives the lock back if `run` holds it. Ends with HELD, and the lock file, if another does."""
    mine = quote(f'"id": {json.dumps(run)},')
    return f"[ -e {PATH} ] || exit 0; if grep -qF {mine} {PATH}; then rm -f {PATH}; else cat {PATH}; exit {HELD}; fi"


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
