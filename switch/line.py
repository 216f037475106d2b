"""The way to one switch during a run: the session that may hold safe mode, and how to make a second one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from .api import Session
from .errors import CheckError, SwitchError
from .menus import Row
from .safemode import RELEASE, TAKE, UNROLL, held


class Talker(Protocol):
    """Whoever can be sent a sentence; raises SwitchError when there is no answer, or a refusal."""

    def talk(self, *words: str) -> Sequence[Row]: ...


class Line(Talker, Protocol):
    """What a transaction may use."""

    def talk_bytes(self, *words: str) -> Sequence[Mapping[str, bytes]]:
        """As `talk`, for values that are no text."""
        ...

    def second(self) -> AbstractContextManager[Talker]:
        """A new session, with the same checks of certificate and password."""
        ...

    def say(self, text: str) -> None:
        """Tell the user how it goes."""
        ...

    def back_out(self) -> str:
        """Take back what was written under safe mode; what became of it, for the end of a message."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the session is gone."""
        ...


class SessionLine:
    """A line over the binary API. `open_` makes a session; the first call of `talk` does."""

    def __init__(self, open_: Callable[[], Session], say: Callable[[str], None]) -> None:
        self._open = open_
        self._say = say
        self._session: Session | None = None
        self._holding = False

    def connect(self) -> None:
        """Log in. Raises SwitchError or SecretError."""
        self._session = self._open()

    def close(self) -> None:
        """End the session; a switch undoes what safe mode holds. Never raises."""
        if self._session:
            self._session.close()

    def talk(self, *words: str) -> list[dict[str, str]]:
        """Send one sentence; the exceptions are those of `Session.talk`."""
        if self._session is None:
            raise SwitchError("not connected")
        rows = self._session.talk(*words)
        if words[0] == TAKE[0]:
            self._holding = True
        elif words[0] in (RELEASE[0], UNROLL[0]):
            self._holding = False
        return rows

    def talk_bytes(self, *words: str) -> list[dict[str, bytes]]:
        """As `talk`, for the contents of files."""
        if self._session is None:
            raise SwitchError("not connected")
        return self._session.talk_bytes(*words)

    def second(self) -> Session:
        return self._open()

    def say(self, text: str) -> None:
        self._say(text)

    @property
    def lost(self) -> bool:
        return self._session is None or self._session.closed

    def back_out(self) -> str:
        """Never raises. Without safe mode there is nothing to take back, and nothing to say."""
        if not self._holding or self._session is None:
            return ""
        self._holding = False
        if self._session.closed:
            return "; the connection is gone, and with it the switch takes back what was not released"
        try:
            held(self)
        except CheckError:
            return "; safe mode was taken from us, what was written since is not taken back by it"
        except SwitchError:
            return "; the connection broke, and with it the switch takes back what was not released"
        try:
            self._session.talk(*UNROLL)
        except SwitchError as fault:
            # Closing the session is the other way to make the switch take everything back.
            self._session.close()
            return f"; unroll failed ({fault}), the connection was closed for the switch to take everything back"
        return "; everything since safe mode was taken is taken back"
