"""State that survives a restart of the switch: its tables, in one JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.routeros_emulator.node_state_file import replace
from lab.routeros_emulator.store import Store

_FORMAT = 2


class SavedStateError(Exception):
    """The saved state cannot be read; the text has the problem of the file."""


class SavedState:
    """Saves and loads a store. The file is private: it holds digests of users' passwords, and those of SNMP."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = ""
        self._tables: dict[str, Any] = {}

    def save(self, store: Store, only: Iterable[str] | None = None) -> None:
        """Replace the file when the tables differ from what it holds; ``only`` names the menus to save, the
        others stay as they were saved last."""
        dump = store.dump()
        tables = dump["tables"]
        self._tables = tables if only is None else self._tables | {path: tables[path] for path in only}
        text = json.dumps({"format": _FORMAT, "tables": self._tables, "next": dump["next"]})
        if text != self._saved:
            replace(self._path, text, mode=0o600)
            self._saved = text

    def load(self, store: Store) -> None:
        """Bring the tables back; nothing happens when there is no file yet. Raises SavedStateError."""
        try:
            data = json.loads(self._path.read_text())
            if data["format"] != _FORMAT:
                raise SavedStateError(f"{self._path}: saved by another version of the emulator; start with --factory")
            store.load(data["tables"], data["next"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SavedStateError(f"{self._path}: not a saved switch state ({error}); start with --factory") from None
