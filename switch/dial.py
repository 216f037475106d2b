"""A line to a switch for commands that need no pyinfra around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .api import Session
from .line import SessionLine

if TYPE_CHECKING:
    from sparkrack.fleet import Switch


@contextmanager
def dialled(switch: Switch, say: Callable[[str], None]) -> Iterator[SessionLine]:
    """A line that is logged in, closed at the end. `say` tells the user how it goes. Raises SwitchError or
    SecretError."""
    password = switch.password.resolve()

    def open_() -> Session:
        pin = switch.tls.sha256 if switch.tls else None
        return Session(str(switch.address), switch.port, tls=pin, user=switch.user, password=password)

    line = SessionLine(open_, say)
    line.connect()
    try:
        yield line
    finally:
        line.close()
