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

from sparkrack.fleet import regular
from sparkrack.fleet.places import state_folder
from sparkrack.fleet.secrets import SecretError

from .errors import CheckError, UnreadableError
from .line import Line
from .menus import (
    ACTIVE,
    ARP,
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
from .reading import Reading, read

CHUNK = 32768
"""Bytes of a file that are asked for at once; `/file/read` gives no more (RouterOS 7.13 and later)."""

LARGEST = 64 * 1024 * 1024

KEPT = tuple(
    menu
    for menu in MENUS
    if menu not in (RESOURCE, ROUTERBOARD, PACKAGE, DEVICE_MODE, SAFE_MODE, ACTIVE, ARP, BRIDGE_HOST, SCHEDULER, SCRIPT)
)
"""The menus a backup holds the rows of: all that we ever write, our own dead man excepted."""


def folder(rack: str, switch: str) -> Path:
    """Where the backups of a switch are: in the operator's state folder (XDG base directories)."""
    return state_folder(rack) / switch


@dataclass(frozen=True)
class Keeper:
    """Keeps backups of one switch in `folder`, the newest `most` of them."""

    folder: Path
    most: int
    password: Callable[[], SecretStr]

    def keep(self, line: Line, name: str) -> Path:
        """Fetch a backup and keep it as `name`. Raises CheckError if it cannot be had or kept; what was left
        on the switch for it is removed in any case."""
        target = self.folder / name
        try:
            target.mkdir(mode=0o700, parents=True)
        except OSError as fault:  # one of that name stays as it is
            raise CheckError(f"no backup could be kept in {self.folder}: {fault}") from None
        try:
            _write(target / "export.rsc", _made(line, name, ".rsc", ("/export", f"=file={name}")))
            secret = f"=password={self.password().get_secret_value()}"
            save = ("/system/backup/save", f"=name={name}", "=encryption=aes-sha256", secret)
            _write(target / "unit.backup", _made(line, name, ".backup", save))
            _write(target / "rows.json", _rows(line))
        except (OSError, CheckError, SecretError, UnreadableError) as fault:
            shutil.rmtree(target, ignore_errors=True)
            raise CheckError(f"no backup could be kept in {self.folder}: {fault}") from None
        for old in names(self.folder)[: -self.most]:
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
    """The newest backup, of those that were not kept because an older one was put back; None without any. So the
    newest stays the newest when it was put back."""
    return next((name for name in reversed(names(place)) if not name.endswith(RESTORING)), None)


_LEFT = re.compile(r"sparkrack-\d{8}T\d{6}-[0-9a-f]{4}(-restore)?\.(rsc|backup)")
"""Files that our runs make on a switch, and fetch."""


def _made(line: Line, name: str, ending: str, sentence: tuple[str, ...]) -> bytes:
    """Let the switch write a file, fetch it, remove it there."""
    file = name + ending
    line.talk(*sentence)
    try:
        return _fetch(line, file)
    finally:
        # What a run that was killed here left behind goes with it: the flash of the unit is small.
        rows = line.talk("/file/print", "=.proplist=.id,name")
        ids = [row[".id"] for row in rows if (told := row.get("name", "")) == file or _LEFT.fullmatch(told)]
        if ids:
            line.talk("/file/remove", f"=.id={','.join(ids)}")


def _fetch(line: Line, file: str) -> bytes:
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


def _rows(line: Line) -> bytes:
    reading = read(lambda sentence: line.talk(*sentence), KEPT, KEPT)
    return dump(reading)


def dump(reading: Reading) -> bytes:
    """A reading as JSON."""
    tables = {path: [dict(row) for row in rows] for path, rows in reading.tables.items()}
    document = {"release": reading.release, "tables": tables, "absent": sorted(reading.absent)}
    return json.dumps(document, indent=1).encode() + b"\n"


def load(path: Path) -> Reading:
    """The reading that `rows.json` of a backup holds. Raises CheckError for a file that is none."""
    try:
        document = json.loads(regular.read_bytes(path))
        tables = {menu: tuple(_row(row) for row in rows) for menu, rows in document["tables"].items()}
        major, minor, patch, phase = document["release"]
        return Reading((major, minor, patch, phase), tables, frozenset(document["absent"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise CheckError(f"{path} is no backup of a switch: {fault}") from None


def _row(row: dict[str, str]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in row.values()):
        raise TypeError("a row has a value that is no text")
    return dict(row)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
