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
    """A logged-in session as the device sees it. ``owner`` is what history and safe mode print."""

    number: int
    user: str
    group: str
    address: str
    service: str
    since: str

    @property
    def owner(self) -> str:
        """Who this is, in one word; the form is inferred."""
        return f"api:{self.user}@{self.address}"


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
