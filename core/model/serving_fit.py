"""Whether the units of a rack file fit: their memory from the record of the model, and how the sum was made."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from core.engines import model_shape
from core.engines.memory_fit import (
    GIB,
    HIGHEST_SHARE,
    MEMORY_GIB,
    OVERHEAD_GIB,
    Demand,
    Fit,
    KvFormat,
    Parallel,
    default_parallel,
    fit,
)
from core.engines.model_shape import ModelConfigError, ModelShape
from core.model.calibration import Calibration
from core.model.fields import mebibytes
from core.model.model_lock import ModelRecord
from core.model.serving import ServingUnit

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Numbers of nodes of a rack."""
OverheadSource = Literal["measured", "declared", "default"]
_WEIGHT_FILES = (".safetensors", ".bin", ".gguf")


@dataclass(frozen=True)
class UnitFit:
    """The memory of the fullest rank of a unit, against what the unit lets the engine take.

    `memory`: GiB of a node that programs share. `allowed`: GiB of it that the engine may take. `overhead_from`: where
    the overhead of the sum comes from.
    """

    fit: Fit
    memory: float
    allowed: float
    overhead_from: OverheadSource

    @property
    def fits(self) -> bool:
        """Whether the engine accepts the split and has room for the sum."""
        return not self.fit.blockers and self.fit.total <= self.allowed

    @property
    def sum(self) -> str:
        """The parts of the sum in GiB."""
        one = self.fit
        parts = {"weights": one.weights, "keys and values": one.kv, "state": one.state, "overhead": one.overhead}
        return ", ".join(f"{name} {part:.1f}" for name, part in parts.items() if round(part, 1))


def parallel_of(unit: ServingUnit) -> Parallel:
    """Return the split of a unit."""
    return Parallel(unit.parallel.tensor, unit.parallel.pipeline)


def record_shape(name: str, record: ModelRecord) -> ModelShape:
    """Return the shape of a recorded model. Raises ModelConfigError when the record does not have it."""
    texts = record.configurations
    if "config.json" not in texts:
        raise ModelConfigError(f"the record of {name} has no config.json; record the model again")
    return model_shape.parse(_json(name, texts, "config.json"), _json(name, texts, "hf_quant_config.json"), name)


def model_type(record: ModelRecord) -> str:
    """Return the kind of a recorded model, such as nemotron_h; empty if the record does not say."""
    try:
        return str(_json("", record.configurations, "config.json").get("model_type", ""))
    except ModelConfigError:
        return ""


def _json(name: str, texts: Mapping[str, str], file: str) -> dict[str, object]:
    try:
        value = json.loads(texts.get(file, "{}"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{file} in the record of {name} is not a JSON object; record the model again")
    return value


def weight_size(record: ModelRecord) -> float | None:
    """Return the bytes of all weight files of a model, None if it has none.

    Some publishers add the same weights again in another form, in folders of their own or as consolidated files.
    """
    top = [file for file in record.files if "/" not in file.path]
    for ending in _WEIGHT_FILES:
        found = [file for file in top if file.path.endswith(ending)]
        parts = [file for file in found if not file.path.startswith("consolidated")]
        if chosen := parts or found:
            return sum(file.size for file in chosen)
    return None


def kv_format(unit: ServingUnit) -> KvFormat:
    """Return the number format of keys and values that a unit sets; without one it is that of the model."""
    return "fp8" if str(unit.args.get("kv-cache-dtype", "")).startswith("fp8") else "bf16"


# claim: serving.memory-fit
def demand_of(unit: ServingUnit, measured: float | None = None) -> tuple[Demand, OverheadSource]:
    """Return what a unit asks for: room for one sequence of full length, and the state of all sequences.

    `measured`: the overhead in GiB that the last good start showed.
    """
    source: OverheadSource = "measured"
    overhead = measured
    if overhead is None:
        source = "declared" if unit.overhead else "default"
        overhead = mebibytes(unit.overhead) / 1024 if unit.overhead else OVERHEAD_GIB
    return Demand(unit.context, unit.sequences, kv_format(unit), overhead), source


def unit_fit(
    unit: ServingUnit,
    shape: ModelShape,
    weights: float | None,
    parallel: Parallel,
    calibration: Calibration | None = None,
    reserved: float = 0.0,
) -> UnitFit:
    """Compute whether a unit fits when its model is split in this way.

    Args:
        unit: the unit.
        shape: the shape of its model.
        weights: bytes of all weight files, None if they are not known.
        parallel: the split, which may be another than that of the unit.
        calibration: figures of the last good start; they count for the split that they were measured with.
        reserved: GiB of a node that no program gets.
    """
    if calibration and (calibration.tensor, calibration.pipeline) != (parallel.tensor, parallel.pipeline):
        calibration = None
    demand, source = demand_of(unit, calibration.overhead if calibration else None)
    found = fit(shape, parallel, demand, weights)
    if calibration:
        token = calibration.kv / calibration.kv_tokens * GIB if calibration.kv_tokens else found.token_bytes
        kv = token * unit.context / GIB
        found = dataclasses.replace(found, weights=calibration.weights, kv=kv, token_bytes=token)
    if unit.kv:
        # The size of the cache is given; it must hold one sequence, which a larger demand than the size shows.
        found = dataclasses.replace(found, kv=max(found.kv, mebibytes(unit.kv) / 1024))
    memory = MEMORY_GIB - reserved
    return UnitFit(found, memory, (unit.memory or HIGHEST_SHARE) * memory, source)


def fitting_counts(
    unit: ServingUnit,
    shape: ModelShape,
    weights: float | None,
    counts: Iterable[int] = COUNTS,
    reserved: float = 0.0,
) -> list[int]:
    """Return the numbers of nodes on which a unit fits with the usual split of each."""
    return [
        count for count in counts if unit_fit(unit, shape, weights, default_parallel(count), reserved=reserved).fits
    ]


def needed_share(found: UnitFit) -> float:
    """Return the lowest share of a node, in hundredths, that has room for the sum."""
    return math.ceil(found.fit.total / found.memory * 100) / 100
