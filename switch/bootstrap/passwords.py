"""The passwords that a switch is given: strong ones, kept on the operator's machine before the switch has them."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

from core.model.secrets import SecretError, SecretRef
from core.routeros.errors import LoginError

SHORTEST = 20
_FEWEST = 10
BITS = 256
TYPED_TRIES = 3
"""Passwords of the factory's user that are typed at most. RouterOS locks no account after failed logins: a firewall
rule does that where one is written (MikroTik manual, 'Bruteforce prevention').
"""

Login = TypeVar("Login")


@dataclass
class FactoryPassword:
    """The password of the factory's user, fetched when it is needed first. `ask` fetches one; `say` prints a line about
    one that the switch refused. `tries`: passwords that are tried at most; one where it is not typed.
    """

    ask: Callable[[], SecretStr]
    say: Callable[[str], None]
    tries: int = 1
    _known: SecretStr | None = field(default=None, init=False, repr=False)

    @property
    def accepted(self) -> SecretStr:
        """The one that the switch has accepted. Raises SecretError before."""
        if self._known is None:
            raise SecretError("the password of the factory's user was not accepted yet")
        return self._known

    def log_in(self, attempt: Callable[[SecretStr], Login]) -> Login:
        """Return the login that `attempt` makes with the password; one that the switch refuses is asked for again while
        a try is left. Raises LoginError for the last one, SecretError, and what `attempt` raises otherwise.
        """
        for left in reversed(range(self.tries)):
            # It stays known after a lost connection, and is not asked for again.
            self._known = self._known or self.ask()
            try:
                return attempt(self._known)
            except LoginError as fault:
                self._known = None
                if not left:
                    raise LoginError(f"{fault}; no try left" if self.tries > 1 else str(fault)) from None
                self.say(f"{fault}; {left} {'try' if left == 1 else 'tries'} left")
        raise LoginError("no password was tried")


@dataclass
class Password:
    """A password of a switch's user, by reference; fetched once, when it is needed first. One that is kept in a
    file which does not exist can be made."""

    ref: SecretRef
    _known: SecretStr | None = field(default=None, init=False, repr=False)

    def __str__(self) -> str:
        return str(self.ref)

    @property
    def there(self) -> bool:
        """Whether the file is expected to exist; otherwise `make` creates it."""
        return self.ref.file is None or os.path.lexists(self.ref.file)

    def get(self) -> SecretStr:
        """Fetch it. Raises SecretError when it cannot be had or is too weak to be set."""
        if self._known is not None:
            return self._known
        found = self.ref.resolve()
        if why := weakness(found.get_secret_value()):
            raise SecretError(f"{self} is too weak for a switch: {why}; {_RIGHT}")
        self._known = found
        return found

    def make(self) -> bool:
        """Make one of 256 bits if it is not there; True when it was made. Raises SecretError.

        It appears under its name whole, on disk and readable by its owner only, or not at all; a file that
        is there is never touched.
        """
        if self.there:
            return False
        assert self.ref.file is not None  # noqa: S101 - else it is there
        fault = ""
        try:
            _keep_file(self.ref.file, secrets.token_urlsafe(BITS // 8))
        except FileExistsError:
            return False  # another process created it at the same moment: that one counts
        except OSError as error:
            fault = error.strerror or type(error).__name__
        if fault:
            raise SecretError(f"{self} cannot be made: {fault}; check its folder")
        return True


_RIGHT = (
    f"take one of at least {SHORTEST} characters, or {{file: path}} with a path that does not exist yet: "
    "one is made there"
)


def weakness(text: str) -> str:
    """Return why `text` is too weak as a password for a switch; "" when it is not."""
    if len(text) < SHORTEST:
        return f"it has fewer than {SHORTEST} characters"
    if not text.isprintable() or not text.isascii():
        # A console and a REST client would spell other characters differently.
        return "it has characters other than the printable ones of ASCII"
    if len(set(text)) < _FEWEST:
        return f"it is made of fewer than {_FEWEST} different characters"
    return ""


def _keep_file(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)  # unlike a rename, never over another file
    finally:
        with suppress(OSError):
            Path(name).unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
