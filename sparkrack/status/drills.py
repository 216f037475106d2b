"""Drills of the black box that are kept on this machine: one JSON file each, beside the journals of runs."""

from __future__ import annotations

import re
from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from core.util import atomic_file, regular_file
from core.util.records import Record, Text
from sparkrack.status.history import broken

MAX_DRILLS = 200
"""Drills that are kept."""
_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-z-]+")


class DrillLevel(StrEnum):
    """What a drill does to a node. The values stand in JSON and in metrics."""

    MARK = "mark"
    """A line for the kernel's log and for the journal; nothing ends."""
    FREEZE = "freeze"
    """systemd stops."""
    PANIC = "panic"
    """The kernel panics."""
    RESET = "reset"
    """The kernel restarts the machine without a shutdown."""


class DrillResult(Record):
    """One drill. `passed`: the chain worked as it should. `verdict`, `confidence`: of the autopsy; None for a mark, and
    where the node did not come back. `seconds`: from the end of the node to its next boot that answered.
    """

    schema_: Literal["sparkrack.drill/1"] = Field("sparkrack.drill/1", alias="schema", serialization_alias="schema")
    run: str
    rack: str
    node: str
    level: DrillLevel
    made: AwareDatetime
    passed: bool
    verdict: str | None = None
    confidence: str | None = None
    seconds: float | None = None
    reason: Text


def store_drill(state: Path, result: DrillResult) -> Path:
    """Keep a drill, and only the newest `MAX_DRILLS`. Raises OSError."""
    made = result.made.astimezone(UTC)
    path = state / "drills" / f"{made:%Y%m%dT%H%M%S}-{result.node}-{result.level}.json"
    atomic_file.write_atomic(path, result.model_dump_json(by_alias=True) + "\n")
    for old in drill_paths(state)[MAX_DRILLS:]:
        old.unlink(missing_ok=True)
    return path


def drill_paths(state: Path) -> list[Path]:
    """Return the files of the drills that are kept, the newest first. Raises StatusHistoryError."""
    folder = state / "drills"
    try:
        found = [path for path in folder.iterdir() if path.suffix == ".json" and _NAME.fullmatch(path.stem)]
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise broken(folder, fault) from None
    return sorted(found, key=lambda path: path.stem, reverse=True)


def latest_drills(state: Path) -> tuple[DrillResult, ...]:
    """Return the newest drill of each node and level, the newest first. Raises StatusHistoryError."""
    found: dict[tuple[str, DrillLevel], DrillResult] = {}
    for path in drill_paths(state):
        try:
            one = DrillResult.model_validate_json(regular_file.read_bytes(path))
        except (OSError, ValueError) as fault:
            raise broken(path, fault) from None
        found.setdefault((one.node, one.level), one)
    return tuple(found.values())
