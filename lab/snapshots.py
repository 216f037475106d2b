"""Snapshots of a lab: its disks, switches, images and seeds in the cache, from which a lab of any folder starts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.image.build import Base
from lab.paths import LabPaths, cache, give_to_caller, make_for_caller

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LEFT_OUT = (
    *("nodes/*/console.log", "nodes/*/sparkrack-*", "switches/*/control", "switches/*/*.log", "switches/*/log.ndjson"),
    *("packages", "packages.*", "images/registry.*", "state"),
)
"""Files that are not part of the machines: logs and sockets, files that `lab up` writes again, records of the
operator's runs.
"""


@dataclass(frozen=True)
class LabSnapshot:
    """One snapshot by its name."""

    name: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise LabError(f"{self.name!r} is not a name for a snapshot: letters, digits, dots, dashes and underscores")

    @property
    def folder(self) -> Path:
        """Its folder."""
        return folder() / self.name

    def save(self, paths: LabPaths, base: Base) -> None:
        """Copy the files of a lab, whose machines do not run. One of this name is replaced."""
        side = self.folder.with_name(f".{self.name}.new")
        shutil.rmtree(side, ignore_errors=True)
        make_for_caller(side)
        _copy_folder(paths.folder, side / "lab")
        made = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"folder": str(paths.folder), "made": made, **_made_of(base)}
        (side / "snapshot.json").write_text(json.dumps(record, indent=1))
        give_to_caller(side)
        shutil.rmtree(self.folder, ignore_errors=True)
        side.rename(self.folder)

    def load(self, paths: LabPaths, base: Base) -> None:
        """Lay the files into a lab's folder, which is not there. Raises LabError where it cannot be used."""
        record = self.check(base)
        shutil.rmtree(paths.folder, ignore_errors=True)
        paths.folder.mkdir(parents=True)
        _copy_folder(self.folder / "lab", paths.folder)
        # The rack file names the lab's own keys and passwords by their absolute paths.
        paths.rack.write_text(paths.rack.read_text().replace(record["folder"], str(paths.folder)))

    def delete(self) -> None:
        """Remove it. Raises LabError when there is none."""
        self._read_record()
        shutil.rmtree(self.folder)

    def check(self, base: Base) -> dict[str, Any]:
        """The record of this snapshot. Raises LabError when there is none, or when it does not fit the image."""
        record, made_of = self._read_record(), _made_of(base)
        if {name: record.get(name) for name in made_of} != made_of:
            raise LabError(
                f"snapshot {self.name} was made with another image or kernel of the nodes; "
                f"`sparkrack lab snapshot --delete {self.name}` removes it"
            )
        return record

    def _read_record(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "snapshot.json").read_text())
        except FileNotFoundError:
            known = ", ".join(names()) or "none"
            raise LabError(f"there is no snapshot {self.name}; there are: {known}") from None
        return found


def folder() -> Path:
    """The folder of all snapshots."""
    return cache() / "lab" / "snapshots"


def names() -> list[str]:
    """The snapshots that there are, the newest last."""
    found = [path for path in folder().glob("*") if not path.name.startswith(".")]
    return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime)]


def _made_of(base: Base) -> dict[str, str]:
    """A disk is what differs from the image, so it is of use with that image alone."""
    return {"image": base.folder.name, "kernel": base.kernel.folder.name}


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder, holes as holes: of a node's 32 GiB a few hundred MB are written."""
    options = ["--sparse", "--anchored", "--no-wildcards-match-slash", *(f"--exclude=./{name}" for name in LEFT_OUT)]
    target.mkdir(exist_ok=True)
    pack = ["tar", "-C", str(source), *options, "-cf", "-", "."]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
        done = subprocess.run(["tar", "-C", str(target), "-xf", "-"], stdin=packing.stdout, capture_output=True)
    if packing.returncode or done.returncode:
        raise LabError(f"copying {source} to {target}: {done.stderr.decode(errors='replace').strip()}")
