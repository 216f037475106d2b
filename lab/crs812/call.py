"""One command in flight, and what a handler may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .menu import Menu
from .sentence import Sentence

if TYPE_CHECKING:
    from .device import Device


@dataclass(eq=False)
class Client:
    """Somebody who gives commands: a logged-in session, or a script. ``owner`` is what history and safe mode
    print. A script says where it comes from in ``origin``, and may do what is in ``policies`` and not what
    its user's group may.
    """

    number: int
    user: str
    group: str
    address: str
    service: str
    since: str
    origin: str = ""
    policies: frozenset[str] | None = None
    port: int = 0

    @property
    def owner(self) -> str:
        """Who this is, in one word; a session's form is inferred."""
        return self.origin or f"{self.via}:{self.user}@{self.address}"

    @property
    def via(self) -> str:
        """How a session came in, as /user/active and the log say it."""
        return "rest-api" if self.service.startswith("www") else "api"


@dataclass(frozen=True)
class Reply:
    """Rows for ``!re``, an optional ``=ret=`` for ``!done``; ``listing`` makes "nothing" an ``!empty``."""

    rows: Sequence[Mapping[str, str]] = ()
    ret: str | None = None
    listing: bool = False


Stream = AsyncIterator[Mapping[str, str]]


@dataclass(frozen=True)
class Call:
    """A command with everything its handler needs."""

    device: Device
    client: Client
    menu: Menu
    sentence: Sentence


Handler = Callable[[Call], Reply | Stream]
