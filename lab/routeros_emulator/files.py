"""The unit's files: a folder beside its saved state, outside of history and safe mode as on the device."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

from lab.routeros_emulator.errors import failure


class Files:
    """Files by name, with their bytes. A directory is a name that ends with a slash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(unquote(path.name) for path in self._folder.glob("*")) if self._folder.exists() else []

    def number(self, name: str) -> int:
        """The id of a file. Ids hold until the unit restarts."""
        return self._numbers.setdefault(name, len(self._numbers) + 1)

    def read(self, name: str) -> bytes:
        """The bytes of a file that exists."""
        return self._path_of_file(name).read_bytes()

    def modified(self, name: str) -> datetime:
        """When a file was last written."""
        return datetime.fromtimestamp(self._path_of_file(name).stat().st_mtime, UTC)

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file that only this user may read. TrapError for a name no file can have."""
        path = self._path_of_file(name)
        if not name or len(path.name) > 255:
            raise failure("bad file name")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)

    def remove(self, name: str) -> None:
        """Delete a file that exists."""
        self._path_of_file(name).unlink()

    def clear(self) -> None:
        """Delete all files: the unit is reset."""
        for name in self.names():
            self.remove(name)

    def _path_of_file(self, name: str) -> Path:
        # Quoted whole, a name is never a path of this machine: no slash and no leading dot is left in it.
        return self._folder / quote(name, safe="").replace(".", "%2E")
