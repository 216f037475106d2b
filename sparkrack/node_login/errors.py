"""Errors that stop the first contact with a node."""

from __future__ import annotations

from core.model.errors import printable_line

_LONGEST = 300


class BootstrapError(Exception):
    """The first contact with one node cannot continue; one line with the reason."""


class NodeUnreachableError(BootstrapError):
    """The node accepts no login at the moment: it restarts, or sshd limits connections for a while."""


class WrongPasswordError(BootstrapError):
    """The node does not take this password."""


def last_line(output: bytes) -> str:
    """Return the last line of a host's error output, in the form of a message."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    text = printable_line(lines[-1]) if lines else ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
