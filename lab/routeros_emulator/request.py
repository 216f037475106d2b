"""One command in flight, and what a handler may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.sentence import Sentence

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice


@dataclass(eq=False)
class RequestClient:
    """Sender of commands: a logged-in session, or a script. ``owner`` is what history and safe mode print. A script has
    its source in ``origin``, and the permissions in ``policies`` instead of those of its user's group.
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
        """Name of the sender, in one word; a session's form is inferred."""
        return self.origin or f"{self.via}:{self.user}@{self.address}"

    @property
    def via(self) -> str:
        """Service of a session, as /user/active and the log print it."""
        return {"www": "rest-api", "www-ssl": "rest-api", "winbox": "winbox"}.get(self.service, "api")


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

    device: EmulatedDevice
    client: RequestClient
    menu: EmulatedMenu
    sentence: Sentence


Handler = Callable[[Call], Reply | Stream]
