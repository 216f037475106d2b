"""Files of ours of which a node shows the content, and their comparison with the desired ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from core.probes.protocol import Reading
from core.util import managed_file
from core.util.managed_file import ManagedFile


@dataclass(frozen=True)
class OwnFiles:
    """Facts of a role that has such files: a base of its class. MODES_FACT: the name of the fact with their owner and
    mode. Methods raise UnknownError for an answer that is unknown.
    """

    MODES_FACT: ClassVar[str]
    reading: Reading

    def before(self, path: str) -> bytes | None:
        """Return the actual content of a file of ours; None for missing."""
        return self.reading.content(path)

    def stale(self, files: Iterable[ManagedFile]) -> list[ManagedFile]:
        """Return the files that differ in content, owner or mode."""
        files, modes = list(files), self.reading.text(self.MODES_FACT)
        return managed_file.differing(
            files, managed_file.states(modes, {file.path: self.before(file.path) for file in files})
        )
