"""What the last good start of a unit measured, and with what: the lock file has it, and it replaces estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from core.model import lock_file
from core.model.errors import ConfigError
from serving.engines.memory_fit import MEMORY_GIB

_OPTIONAL = ("state", "reserved")
"""Figures that are left out of the lock file where they are zero."""
_NAMES = {
    "source": "the model",
    "revision": "the revision of the model",
    "image": "the image",
    "quantization": "quantization",
    "kv_cache_dtype": "kv-cache-dtype",
    "expert": "parallel.expert",
    "speculative": "speculative options",
    "batch": "tokens at once",
    "kind": "kind",
    "before": "before",
    "files": "files",
}


@dataclass(frozen=True)
class Conditions:
    """What a start was measured with; the figures are true for it only.

    `source` and `revision`: repository and commit of the model; of a folder None, and a hash of its files. `image`: the
    image ID in docker. `quantization`, `kv_cache_dtype`: these options, empty where the engine decides. `expert`:
    whether experts were spread. `speculative`: the options for drafts, as JSON. `batch`: tokens that are computed at
    once, empty where the engine decides. `context`, `sequences`: of the unit; a smaller demand is covered by them.
    `kind`: of the unit. `before`: its program before the engine, as JSON. `files`: a hash of its own files, with their
    paths. An entry of a release that did not know these three was of a unit without them.
    """

    source: str | None
    revision: str
    image: str
    quantization: str
    kv_cache_dtype: str
    expert: bool
    speculative: str
    batch: str
    context: int
    sequences: int
    kind: str = "chat"
    before: str = ""
    files: str = ""

    def difference(self, now: Conditions) -> str:
        """Return in what a unit is another one than that which was measured; empty if the figures count for it."""
        for name, words in _NAMES.items():
            before, after = getattr(self, name), getattr(now, name)
            if before != after:
                return f"it was measured with {words} {_shorten_value(before)}, now {_shorten_value(after)}"
        for name in ("context", "sequences"):
            before, after = getattr(self, name), getattr(now, name)
            if before < after:
                return f"it was measured with {name} {before}, now {after}"
        return ""


def _shorten_value(value: object) -> str:
    return str(value).removeprefix("sha256:")[:120] if value not in (None, "") else "not given"


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
    measured_with: Conditions | None = None
    """None in a record of a release that did not write it: such a record counts for nothing."""

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
        made = _parse_calibration(entry.get("calibration") if isinstance(entry, dict) else None)
        if made:
            found[name] = made
    return found


def _parse_calibration(entry: Any) -> Calibration | None:
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
            measured_with=_parse_conditions(entry.get("measured_with")),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    optional = {name: getattr(made, name) for name in _OPTIONAL}
    figures = {**vars(made), **{name: value + 1 for name, value in optional.items()}}
    del figures["measured_with"]
    valid = all(value >= 0 for value in optional.values()) and all(0 < value < math.inf for value in figures.values())
    return made if valid and made.reserved < MEMORY_GIB else None


def _parse_conditions(entry: Any) -> Conditions | None:
    names = {one.name: one.default is MISSING for one in fields(Conditions)}
    if not isinstance(entry, dict) or any(needed and name not in entry for name, needed in names.items()):
        return None
    made = Conditions(**{name: entry[name] for name in names if name in entry})
    texts = (
        *(made.source or "", made.revision, made.image, made.quantization),
        *(made.kv_cache_dtype, made.speculative, made.batch, made.kind, made.before, made.files),
    )
    numbers = (made.context, made.sequences)
    valid = all(isinstance(text, str) for text in texts) and isinstance(made.expert, bool)
    return made if valid and all(type(number) is int for number in numbers) else None


def record(path: Path, declared: Iterable[str], unit: str, measured: Calibration) -> None:
    """Write what a unit measured to the lock file; units that are no longer declared are dropped.

    Args:
        path: rack.lock.json.
        declared: the units of rack.yaml.
        unit: one of them.
        measured: its figures.

    Raises:
        OSError: the file cannot be written.
        ConfigError: the file is not a lock file.
    """
    names = set(declared)
    with lock_file.exclusive(path):
        kept = {name: entry for name, entry in lock_file.read_section(path, "units").items() if name in names}
        before = kept.get(unit)
        entry = {name: value for name, value in asdict(measured).items() if name not in _OPTIONAL or value}
        if measured.measured_with:
            usual = {one.name: one.default for one in fields(Conditions)}
            conditions = asdict(measured.measured_with)
            entry["measured_with"] = {name: value for name, value in conditions.items() if value != usual[name]}
        kept[unit] = {**(before if isinstance(before, dict) else {}), "calibration": entry}
        lock_file.write_section(path, "units", kept)
