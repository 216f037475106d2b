"""The passwords that a switch is given: strong ones, kept on the operator's machine before the switch has them."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from core.model.secrets import SecretError, SecretRef

SHORTEST = 20
_FEWEST = 10
BITS = 256


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
