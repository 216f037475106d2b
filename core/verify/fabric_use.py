"""Who measures over the fabric now, and what was measured: shared by the sessions of one verification."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.verify.measurements import Bandwidth


class FabricUse:
    """The sessions of one verification measure in parallel; a collective needs the whole fabric for itself."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: private, of all sessions of this verification; without one, nothing is shared."""
        self._folder = folder

    @contextmanager
    def shared(self) -> Iterator[None]:
        """During the block other sessions may use the fabric, and none has it alone."""
        with self._hold_fabric_lock(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """During the block no other session measures over the fabric."""
        with self._hold_fabric_lock(fcntl.LOCK_EX):
            yield

    def record(self, value: Bandwidth) -> None:
        """Show a measurement to the other sessions."""
        if self._folder is not None:
            with (self._folder / "bandwidth").open("a", encoding="utf-8") as file:
                file.write(f"{value.model_dump_json()}\n")

    def measured(self) -> tuple[Bandwidth, ...]:
        """Return what the sessions of this verification have measured so far."""
        file = self._folder / "bandwidth" if self._folder is not None else None
        if file is None or not file.exists():
            return ()
        return tuple(map(Bandwidth.model_validate_json, file.read_text(encoding="utf-8").splitlines()))

    @contextmanager
    def _hold_fabric_lock(self, how: int) -> Iterator[None]:
        if self._folder is None:
            yield
            return
        with (self._folder / "fabric.lock").open("w", encoding="utf-8") as file:
            fcntl.flock(file, how)
            yield
