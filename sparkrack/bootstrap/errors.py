"""Why a first contact with a node stops."""

from __future__ import annotations

from sparkrack.fleet.errors import one_line

_LONGEST = 300


class ContactError(Exception):
    """The first contact with one node cannot go on; one line that says why."""


class AwayError(ContactError):
    """The node lets nobody in at the moment: it restarts, or sshd has had enough of connections for a while."""


class WrongPasswordError(ContactError):
    """The node does not take this password."""


def last_line(said: bytes) -> str:
    """The last thing that a machine complained about, as it may stand in a message."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    text = one_line(lines[-1]) if lines else ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
