"""A node that records, for the cases of the role blackbox: `python -m tests.unit.roles.recorder_files` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from core.util.managed_file import ManagedFile
from roles.blackbox import recorder
from tests.unit.roles.cases import OPERATIONS, rack_of, read

BASE = OPERATIONS / "blackbox.recording.yaml"
EDITS = {"rack": [["memory:\n", "blackbox: {clock_cap: {asus: 2200}, recorder: {}}\nmemory:\n"]]}
HEAD = "# A node that is as blackbox.set.yaml says, and records. tests/unit/roles/recorder_files.py writes this file.\n"


def files() -> list[ManagedFile]:
    """The files of the recorder on the node of the cases."""
    rack = rack_of(EDITS)
    return recorder.files(rack, rack.nodes["spark1"])


def state() -> dict[str, Any]:
    """What a node that records answers otherwise than one with the rest of the role."""
    program, unit = files()
    last = read(OPERATIONS / "blackbox.set.yaml")["blackbox-modes"].splitlines()[-1]
    found: dict[str, Any] = {"from": "set", unit.path: unit.content.decode()}
    found["blackbox-modes"] = [[last, f"{last}\n644 root:root {unit.path}"]]
    found["blackbox-recorder-program"] = f"755 root:root {program.state.sha256} {program.path}\n"
    found["blackbox-recorder-units"] = (
        f"Id={recorder.NAME}\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n\n"
        f"Id={recorder.RECEIVER}\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n"
    )
    found["blackbox-recorder-state"] = "recorder pending no\nrecorder age 0\nrecorder python yes\n"
    return found


def write(path: Path) -> None:
    """Write the file of the cases."""
    yaml = YAML()
    yaml.width = 10_000
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        literal = {key: LiteralScalarString(text) if "\n" in text else text for key, text in state().items()}
        yaml.dump(literal, file)


if __name__ == "__main__":
    write(BASE)
