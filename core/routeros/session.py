"""A session with a switch during a run: it may hold safe mode, and can open a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from core.routeros.api import ApiSession
from core.routeros.errors import CheckError, StoppedError, SwitchError
from core.routeros.menus import Row
from core.routeros.safe_mode import RELEASE, TAKE, UNROLL, enabled, ours, state


class Client(Protocol):
    """A client that sends sentences; raises SwitchError for a missing answer or an error."""

    def talk(self, *words: str) -> Sequence[Row]: ...


class SwitchConnection(Client, Protocol):
    """The methods of a connection that a transaction may use."""

    def talk_bytes(self, *words: str) -> Sequence[Mapping[str, bytes]]:
        """Send one sentence as `talk` does, for values that are not text."""
        ...

    def second(self) -> AbstractContextManager[Client]:
        """A new session, with the same checks of certificate and password."""
        ...

    def say(self, text: str) -> None:
        """Report progress to the user."""
        ...

    def back_out(self) -> str:
        """Take back what was written under safe mode; what became of it, for the end of a message."""
        ...

    @property
    def stopped(self) -> Callable[[], str]:
        """Says why nothing more may be sent; empty as long as it may."""
        ...

    @property
    def lost(self) -> bool:
        """Return whether the session is lost."""
        ...


class SessionConnection:
    """A line over the binary API. `open_` makes a session; the first call of `talk` does.

    stopped: called before each sentence, returns why nothing more may be sent, as when the run has lost its lock; empty
    as long as it may. What takes back (`back_out`, `revert`) is sent all the same.
    """

    def __init__(self, open_: Callable[[], ApiSession], say: Callable[[str], None]) -> None:
        self._open = open_
        self._say = say
        self.stopped: Callable[[], str] = lambda: ""
        self._session: ApiSession | None = None
        self._holding = False

    def connect(self) -> None:
        """Log in. Raises SwitchError or SecretError."""
        self._session = self._open()

    def close(self) -> None:
        """End the session; a switch undoes what safe mode holds. Never raises."""
        if self._session:
            self._session.close()

    def talk(self, *words: str) -> list[dict[str, str]]:
        """Send one sentence. Raises StoppedError, and the exceptions of `ApiSession.talk`."""
        self._check_stopped()
        return self.revert(*words)

    def revert(self, *words: str) -> list[dict[str, str]]:
        """As `talk`, for what takes back an earlier sentence: it is sent although nothing else may be."""
        if self._session is None:
            raise SwitchError("not connected")
        rows = self._session.talk(*words)
        if words[0] == TAKE[0]:
            self._holding = True
        elif words[0] in (RELEASE[0], UNROLL[0]):
            self._holding = False
        return rows

    def talk_bytes(self, *words: str) -> list[dict[str, bytes]]:
        """Send one sentence as `talk` does, for the contents of files."""
        self._check_stopped()
        if self._session is None:
            raise SwitchError("not connected")
        return self._session.talk_bytes(*words)

    def _check_stopped(self) -> None:
        if why := self.stopped():
            raise StoppedError(f"{why}; nothing more is sent")

    def second(self) -> ApiSession:
        return self._open()

    def say(self, text: str) -> None:
        self._say(text)

    @property
    def lost(self) -> bool:
        return self._session is None or self._session.closed

    def back_out(self) -> str:
        """Roll safe mode back and report it; never raises. Without safe mode there is nothing to roll back."""
        if not self._holding or self._session is None:
            return ""
        self._holding = False
        if self._session.closed:
            return "; the connection is gone: the switch reverts what was not released"
        try:
            row = state(self._session)
            mine, taken = ours(row), enabled(row)
        except CheckError:
            return "; who holds safe mode is unknown, so whether later writes are reverted by it is, too"
        except SwitchError:
            return "; the connection broke: the switch reverts what was not released"
        if taken and not mine:
            return "; another session has taken safe mode, so later writes are not reverted by it"
        if not mine:
            return "; safe mode has ended by itself, so what was written under it is not reverted by it"
        try:
            self._session.talk(*UNROLL)
        except SwitchError as fault:
            # Closing the session also makes the switch roll everything back.
            self._session.close()
            return f"; unroll failed ({fault}), the connection was closed for the switch to take everything back"
        return "; all changes since safe mode was taken are reverted"


if TYPE_CHECKING:
    from core.model import Switch


@contextmanager
def open_connection(switch: Switch, say: Callable[[str], None]) -> Iterator[SessionConnection]:
    """Open a logged-in connection, closed at the end. `say` reports progress to the user. Raises SwitchError or
    SecretError.
    """
    password = switch.password.resolve()

    def open_() -> ApiSession:
        pin = switch.tls.sha256 if switch.tls else None
        return ApiSession(str(switch.address), switch.port, tls=pin, user=switch.user, password=password)

    line = SessionConnection(open_, say)
    line.connect()
    try:
        yield line
    finally:
        line.close()
