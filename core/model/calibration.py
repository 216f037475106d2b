"""What the last good start of a unit measured, from the lock file: it replaces estimates of what fits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.engines.memory_fit import MEMORY_GIB
from core.model import lock_file
from core.model.errors import ConfigError

_OPTIONAL = ("state", "reserved")
"""Figures that are left out of the lock file where they are zero."""


@dataclass(frozen=True)
class Calibration:
    """Figures that an engine printed, on the fullest rank, with the split that they belong to.

    `share`: the share of a node that the engine was given. `weights`: GiB of weights. `kv`: GiB for keys and values.
    `kv_tokens`: the tokens that these hold. `state`: GiB for the state of Mamba layers, where `kv` does not have it.
    `reserved`: GiB of the node that no program had at that start: the engine took its share of the rest.
    """

    tensor: int
    pipeline: int
    share: float
    weights: float
    kv: float
    kv_tokens: int
    state: float = 0.0
    reserved: float = 0.0

    @property
    def given(self) -> float:
        """GiB that the engine was given."""
        return self.share * (MEMORY_GIB - self.reserved)

    @property
    def overhead(self) -> float:
        """GiB that neither weights, nor keys and values, nor state took."""
        return max(0.0, self.given - self.weights - self.kv - self.state)


def read(path: Path) -> dict[str, Calibration]:
    """Return what the lock file has measured, by unit; an entry that is not complete does not count.

    `path`: rack.lock.json. A file that cannot be read has nothing here: what reads its models reports it.
    """
    try:
        units = lock_file.read_section(path, "units")
    except ConfigError:
        return {}
    found: dict[str, Calibration] = {}
    for name, entry in units.items():
        made = _calibration(entry.get("calibration") if isinstance(entry, dict) else None)
        if made:
            found[name] = made
    return found


def _calibration(entry: Any) -> Calibration | None:
    try:
        made = Calibration(
            tensor=int(entry["tensor"]),
            pipeline=int(entry["pipeline"]),
            share=float(entry["share"]),
            weights=float(entry["weights"]),
            kv=float(entry["kv"]),
            kv_tokens=int(entry["kv_tokens"]),
            state=float(entry.get("state", 0)),
            reserved=float(entry.get("reserved", 0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    optional = {name: getattr(made, name) for name in _OPTIONAL}
    figures = {**vars(made), **{name: value + 1 for name, value in optional.items()}}
    valid = all(value >= 0 for value in optional.values()) and all(0 < value < math.inf for value in figures.values())
    return made if valid and made.reserved < MEMORY_GIB else None


def record(path: Path, declared: Iterable[str], unit: str, measured: Calibration) -> None:
    """Write what a unit measured to the lock file; units that are no longer declared are dropped.

    Args:
        path: rack.lock.json.
        declared: the units of rack.yaml.
        unit: one of them.
        measured: its figures.

    Raises:
        OSError: the file cannot be written.
        ConfigError: the file is no lock file.
    """
    names = set(declared)
    with lock_file.exclusive(path):
        kept = {name: entry for name, entry in lock_file.read_section(path, "units").items() if name in names}
        before = kept.get(unit)
        entry = {name: value for name, value in asdict(measured).items() if name not in _OPTIONAL or value}
        kept[unit] = {**(before if isinstance(before, dict) else {}), "calibration": entry}
        lock_file.write_section(path, "units", kept)
