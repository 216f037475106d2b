"""Units as the tests of options declare them, and what a lock knows of their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.model import load, model_lock
from core.model.image_lock import ImageNccl, Pin
from core.model.lock_file import lock_path
from serving import calibration
from serving import rules as serving_rules
from serving.options import served_units
from tests.unit.model.serving_racks import (
    IMAGE_ID,
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
    """What a file is warned of, with images against whose NCCL nothing is known."""
    rack = load(put(tmp_path, file, models, units))
    lock, nccl = lock_path(rack.source), ImageNccl("2.30.7", "system", ())
    pins = {one.image: Pin(None, IMAGE_ID, nccl) for one in served_units(rack).values()}
    found = serving_rules.notes(rack, model_lock.read(lock), calibration.read(lock), pins)
    return [f"{'.'.join(map(str, note.path))}: {note.what}; {note.right}" for note in found]
