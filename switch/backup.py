"""Backups of a switch on the operator's machine: what it was before a run changed it.

One folder a run, readable by its owner only: the unit's own backup (binary, encrypted with the password of
our user; only the same unit loads it), its text export (without secrets), and the rows of our menus, from
which `sparkrack switch restore` puts a state back without a reboot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from core.model.secrets import SecretError
from core.routeros.errors import CheckError, SwitchError, UnreadableError
from core.routeros.menus import (
    ACTIVE,
    ARP,
    BONDING,
    BRIDGE_HOST,
    DEVICE_MODE,
    MENUS,
    PACKAGE,
    RESOURCE,
    ROUTERBOARD,
    SAFE_MODE,
    SCHEDULER,
    SCRIPT,
)
from core.routeros.reading import SwitchReading, read_switch
from core.routeros.session import SwitchConnection
from core.util import regular_file
from core.util.paths import state_folder

CHUNK = 32768
"""Bytes of a file that are read at once; `/file/read` returns no more (RouterOS 7.13 and later)."""

LARGEST = 64 * 1024 * 1024

KEPT = tuple(
    menu
    for menu in MENUS
    if menu
    not in (
        RESOURCE,
        ROUTERBOARD,
        PACKAGE,
        DEVICE_MODE,
        SAFE_MODE,
        ACTIVE,
        ARP,
        BONDING,
        BRIDGE_HOST,
        SCHEDULER,
        SCRIPT,
    )
)
"""Menus whose rows a backup holds: all that we ever write, except our own rollback timer."""


def folder(rack: str, switch: str) -> Path:
    """Return the folder of the backups of a switch, in the operator's state folder (XDG base directories)."""
    return state_folder(rack) / switch


@dataclass(frozen=True)
class Keeper:
    """Keeps backups of one switch in `folder`: the first, from before any run, and the newest `most` others."""

    folder: Path
    most: int
    password: Callable[[], SecretStr]

    def keep(self, line: SwitchConnection, name: str) -> Path:
        """Fetch a backup and keep it as `name`. Raises CheckError if it cannot be had or kept; what was left
        on the switch for it is removed in any case."""
        target = self.folder / name
        try:
            target.mkdir(mode=0o700, parents=True)
        except OSError as fault:  # one of that name stays as it is
            raise CheckError(f"no backup could be kept in {self.folder}: {fault}") from None
        try:
            _write_file(target / "export.rsc", fetch_export(line, name))
            secret = f"=password={self.password().get_secret_value()}"
            save = ("/system/backup/save", f"=name={name}", "=encryption=aes-sha256", secret)
            _write_file(target / "unit.backup", _make_and_fetch(line, name, ".backup", save))
            _write_file(target / "rows.json", dump(reading(line)))
        except SwitchError as fault:
            shutil.rmtree(target, ignore_errors=True)
            # Not the disk of this machine, whose folder is named below.
            full = "; its own flash is full, remove files there (/file/print)" if "space" in str(fault) else ""
            raise CheckError(f"the switch gave no backup: {fault}{full}") from None
        except (OSError, CheckError, SecretError, UnreadableError) as fault:
            shutil.rmtree(target, ignore_errors=True)
            raise CheckError(f"no backup could be kept in {self.folder}: {fault}") from None
        for old in names(self.folder)[1 : -self.most]:
            shutil.rmtree(self.folder / old, ignore_errors=True)
        return target


def names(place: Path) -> list[str]:
    """The backups in a folder, the oldest first."""
    if not place.is_dir():
        return []
    return sorted(path.name for path in place.iterdir() if (path / "rows.json").is_file())


RESTORING = "-restore"
"""The ending of the names of runs that put a backup back."""


def newest(place: Path) -> str | None:
    """Return the newest backup; None without any. Those that a restore keeps do not count, so that a restored backup
    stays the newest.
    """
    return next((name for name in reversed(names(place)) if not name.endswith(RESTORING)), None)


def oldest(place: Path) -> str | None:
    """The first backup: what the switch was before any run changed it; None without any."""
    return next(iter(names(place)), None)


_ANY = (1, 0, 0, 0)
"""Release from which on rows are kept: before an upgrade an older release than OLDEST is kept, too."""

_LEFT = re.compile(r"sparkrack-(undo-)?\d{8}T\d{6}-[0-9a-f]{4}(-restore)?\.(rsc|backup)")
"""Files that our runs make on a switch, and fetch."""


def _make_and_fetch(line: SwitchConnection, name: str, ending: str, sentence: tuple[str, ...]) -> bytes:
    """Let the switch write a file, fetch it, remove it there."""
    file = name + ending
    line.talk(*sentence)
    try:
        return fetch(line, file)
    finally:
        # Leftovers of a run that was killed here are removed too: the flash of the unit is small.
        rows = line.talk("/file/print", "=.proplist=.id,name")
        ids = [row[".id"] for row in rows if (found := row.get("name", "")) == file or _LEFT.fullmatch(found)]
        if ids:
            line.talk("/file/remove", f"=.id={','.join(ids)}")


def fetch_export(line: SwitchConnection, name: str) -> bytes:
    """Return the configuration of a switch as text, without its secrets. The switch writes it to the file `name`.rsc,
    which is removed. Raises SwitchError, or CheckError when the file is empty.
    """
    return _make_and_fetch(line, name, ".rsc", ("/export", f"=file={name}"))


# claim: switch.backup.whole-files
def fetch(line: SwitchConnection, file: str) -> bytes:
    """Return the contents of a file on the switch. Raises CheckError for an empty one, and SwitchError."""
    found = b""
    while len(found) < LARGEST:
        rows = line.talk_bytes("/file/read", f"=file={file}", f"=chunk-size={CHUNK}", f"=offset={len(found)}")
        part = b"".join(row.get("data", b"") for row in rows)
        found += part
        if len(part) < CHUNK:
            break
    if not found:
        raise CheckError(f"{file} is empty on the switch")
    return found


def reading(line: SwitchConnection) -> SwitchReading:
    """Read the rows that a backup holds."""
    return read_switch(lambda sentence: line.talk(*sentence), KEPT, KEPT, oldest=_ANY)


def dump(found: SwitchReading) -> bytes:
    """Serialize a reading as JSON."""
    tables = {path: [dict(row) for row in rows] for path, rows in found.tables.items()}
    document = {"release": found.release, "tables": tables, "absent": sorted(found.absent)}
    return json.dumps(document, indent=1).encode() + b"\n"


def load(path: Path) -> SwitchReading:
    """Load the reading in `rows.json` of a backup. Raises CheckError for an invalid file."""
    try:
        document = json.loads(regular_file.read_bytes(path))
        tables = {menu: tuple(_plain_row(row) for row in rows) for menu, rows in document["tables"].items()}
        major, minor, patch, phase = document["release"]
        return SwitchReading((major, minor, patch, phase), tables, frozenset(document["absent"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise CheckError(f"{path} is not a backup of a switch: {fault}") from None


def _plain_row(row: dict[str, str]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in row.values()):
        raise TypeError("a row has a value that is not a text")
    return dict(row)


def _write_file(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
