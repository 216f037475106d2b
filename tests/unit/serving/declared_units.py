"""Units as the tests of options declare them, and what a lock knows of their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.model import image_lock, load, model_lock
from core.model.lock_file import lock_path
from serving import calibration
from serving import rules as serving_rules
from tests.unit.model.serving_racks import (
    NEMOTRON,
    QWEN,
    put,
    record,
    unit,
)

QWEN_SIZE = 124 * 10**9
RECORDS = {
    "qwen": record("Qwen3-235B-A22B", QWEN_SIZE),
    "nemotron": record("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326 * 10**9, model_type="nemotron_h"),
}
P = "serving.units.qwen"
BY_CABLE = "which the launcher does by the cable of each node"
OWN_INTERFACE = (
    "names the interface of each node, which the launcher does: another one, or none, ends or slows the ranks"
)
HIDES = "hides the line in which NCCL says what network it uses, which a start reads"
TWO_OF_FOUR = {"nodes": ["n0", "n1"]}


def qwen(**keys: Any) -> dict[str, Any]:
    """The units of a rack file: only this one."""
    return {"qwen": unit(QWEN, **keys)}


def nemotron(**keys: Any) -> dict[str, Any]:
    return {"nemotron": unit(NEMOTRON, **keys)}


def notes(file: str, tmp_path: Path, models: Any = None, units: Any = None) -> list[str]:
    rack = load(put(tmp_path, file, models, units))
    lock = lock_path(rack.source)
    found = serving_rules.notes(rack, model_lock.read(lock), calibration.read(lock), image_lock.known_ids(lock))
    return [f"{'.'.join(map(str, note.path))}: {note.what}; {note.right}" for note in found]
