"""Whether units of rack.yaml, or any model, fit on nodes: what `sparkrack serve check` finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, Field

from core.model import Rack, image_lock, lock_file, model_lock
from core.model.errors import printable_line
from core.model.role import reserved_gib
from core.util.command_error import CommandError
from core.util.records import Text
from roles.memory.options import MemoryOptions
from serving import calibration
from serving.engines.memory_fit import GIB, Demand, Fit, KvFormat, Verdict, unknown_reason, weight_bytes
from serving.engines.model_shape import ModelConfigError, ModelShape
from serving.engines.registry import ENGINES
from serving.fit import (
    KnownUnit,
    OverheadSource,
    UnitFit,
    counted_calibration,
    fitting_counts,
    found_fit,
    known_unit,
    parallel_of,
    record_shape,
    unit_fit,
    usual_parallel,
    weight_size,
)
from serving.options import ServedUnit, served_units
from serving.shared_nodes import node_sums


class UnitFitRecord(BaseModel):
    """The memory of the fullest node of a unit in GiB; the figures are null when they are unknown.

    `fits`: accepted is a no, or an unknown, that fit.override overrides; with unknown the total is what is known of it.
    `host`: what options take of the host's memory, which is the same memory. `allowed`: what the unit lets the engine
    take of a node. `weights_from`: the lock file, counted from the configuration where it has no sizes, or declared.
    `not_calibrated`: why the calibration in the lock file does not count; empty if it counts, or there is none.
    """

    unit: str
    model: str
    nodes: int
    tensor_parallel: int
    pipeline_parallel: int
    fits: Literal["yes", "no", "accepted", "unknown"]
    reason: Text
    weights: float | None = None
    weights_from: Literal["lock file", "config", "declared"] | None = None
    kv: float | None = None
    state: float | None = None
    overhead: float | None = None
    overhead_from: OverheadSource | None = None
    host: float | None = None
    total: float | None = None
    allowed: float | None = None
    tokens_left: int | None = None
    not_calibrated: Text = ""


class NodeSumRecord(BaseModel):
    """What the units that can be up together on a node take of it, in GiB: `units` by name, of a slot the largest."""

    node: str
    units: dict[str, float]
    total: float
    allowed: float


class ServeUnitsRecord(BaseModel):
    """Whether the units of a rack file fit. `reserved`: GiB of each node that its crash kernel keeps. `shared`: the
    nodes on which several units can be up."""

    schema_: Literal["sparkrack.serve-units/1"] = Field(
        "sparkrack.serve-units/1", alias="schema", serialization_alias="schema"
    )
    file: Text
    reserved: float = 0.0
    units: tuple[UnitFitRecord, ...]
    shared: tuple[NodeSumRecord, ...] = ()


def check_units(rack: Rack, units: Iterable[ServedUnit], node_count: int | None) -> ServeUnitsRecord:
    """Compute whether units fit.

    Args:
        rack: the rack.
        units: some of its units.
        node_count: another number of nodes than that of each unit, with its usual split; None for their own.
    """
    lock = lock_file.lock_path(rack.source)
    records, calibrations = model_lock.read_declared(lock, rack.models), calibration.read(lock)
    images, reserved = image_lock.known_ids(lock), reserved_gib(lambda key: getattr(rack, key))
    known = {
        name: known_unit(unit, records, images.get(unit.image), calibrations.get(name), reserved)
        for name, unit in served_units(rack).items()
    }
    return ServeUnitsRecord(
        file=str(rack.source),
        reserved=reserved,
        units=tuple(_check_unit(unit, known[unit.name], node_count) for unit in units),
        shared=_check_shared_nodes(rack, known, reserved),
    )


def _check_shared_nodes(rack: Rack, known: Mapping[str, KnownUnit], reserved: float) -> tuple[NodeSumRecord, ...]:
    units = served_units(rack)
    fits = {name: found_fit(unit, known[name]) for name, unit in units.items()}
    return tuple(
        NodeSumRecord(
            node=found.node,
            units={name: round(gib, 3) for name, gib in found.parts.items()},
            total=round(found.total, 3),
            allowed=round(found.allowed, 3),
        )
        for found in node_sums(units, rack.nodes, fits, rack.options(MemoryOptions), reserved)
    )


def _check_unit(unit: ServedUnit, known: KnownUnit, node_count: int | None) -> UnitFitRecord:
    record, further, reserved = known.record, known.further, known.reserved
    split = usual_parallel(unit, node_count) if node_count else parallel_of(unit)
    found = UnitFitRecord(
        unit=unit.name,
        model=unit.model,
        nodes=split.nodes,
        tensor_parallel=split.tensor,
        pipeline_parallel=split.pipeline,
        fits="unknown",
        reason=f"the lock file has no record of {unit.model}",
    )
    if ENGINES[unit.engine].weights and (sums := found_fit(unit, known)):
        return _record_declared_sizes(unit, found, sums)
    if record is None:
        return found
    try:
        shape = record_shape(unit.model, record)
    except ModelConfigError as error:
        return found.model_copy(update={"reason": str(error)})
    weights = weight_size(record)
    counted, not_calibrated = counted_calibration(unit, known, split)
    made = unit_fit(unit, shape, weights, split, counted, reserved, further)
    accepted = unit.fit and not made.fits and not made.fit.blockers and not node_count
    fits = "accepted" if accepted else made.verdict
    left = (made.allowed - made.fit.total) * GIB / made.fit.token_bytes if made.fit.token_bytes else 0
    unknown = made.fit.unknown
    return found.model_copy(
        update={
            "fits": fits,
            "reason": _explain_fit(
                unit,
                made,
                fitting_counts(unit, shape, weights, reserved=reserved, further=further),
                accepted=fits == "accepted",
            ),
            "weights": None if "weights" in unknown else round(made.fit.weights, 3),
            "weights_from": "lock file" if weights is not None else "config",
            "kv": None if "cache" in unknown and not unit.kv else round(made.fit.kv, 3),
            "state": None if "cache" in unknown else round(made.fit.state, 3),
            "overhead": round(made.fit.overhead, 3),
            "overhead_from": made.overhead_from,
            "host": round(made.fit.host, 3),
            "total": round(made.fit.total, 3),
            "allowed": round(made.allowed, 3),
            "tokens_left": None if "cache" in unknown else max(0, int(left)),
            "not_calibrated": not_calibrated,
        }
    )


def _record_declared_sizes(unit: ServedUnit, found: UnitFitRecord, sums: UnitFit) -> UnitFitRecord:
    """Return the record of a unit whose sizes are declared."""
    accepted = unit.fit and not sums.fits
    reason = unknown_reason(sums.fit.unknown) or (
        "" if sums.fits else f"needs {sums.fit.total:.1f} GiB a node, {sums.allowed:.1f} GiB are allowed"
    )
    return found.model_copy(
        update={
            "fits": "accepted" if accepted else sums.verdict,
            "reason": f"{reason}; accepted: {unit.fit.override}" if accepted and unit.fit else reason,
            "weights": None if "weights" in sums.fit.unknown else round(sums.fit.weights, 3),
            "weights_from": "declared" if unit.custom else "lock file",
            "kv": round(sums.fit.kv, 3) if unit.kv else None,
            "overhead": round(sums.fit.overhead, 3),
            "overhead_from": sums.overhead_from,
            "total": round(sums.fit.total, 3),
            "allowed": round(sums.allowed, 3),
        }
    )


def _explain_fit(unit: ServedUnit, made: UnitFit, counts: list[int], *, accepted: bool) -> str:
    if made.fits:
        return ""
    unknown = unknown_reason(made.fit.unknown)
    if made.verdict == "unknown":
        return f"{unknown}; accepted: {unit.fit.override}" if accepted and unit.fit else unknown
    others = f"fits on {', '.join(map(str, counts))}" if counts else "fits on no number of nodes up to 8"
    if made.fit.blockers:
        return f"{'; '.join(made.fit.blockers)}; {others}"
    what = f"needs {'more than ' if unknown else ''}{made.fit.total:.1f} GiB a node, {made.allowed:.1f} GiB are allowed"
    if made.overfills:
        what = (
            f"takes {made.taken:.1f} GiB a node with {made.fit.host:.1f} GiB of the host's memory, of "
            f"{made.memory:.2f} GiB"
        )
    if unknown and not accepted:
        return what
    return f"{what}; accepted: {unit.fit.override}" if accepted and unit.fit else f"{what}; {others}"


WeightSource = Literal["option", "lock file", "config"]


class FitRecord(BaseModel):
    """The memory of the fullest node in GiB, for one number of nodes; a figure is null when it is unknown."""

    nodes: int
    tensor_parallel: int
    pipeline_parallel: int
    verdict: Verdict
    reason: Text
    weights: float | None
    kv: float | None
    state: float | None
    overhead: float
    total: float
    tokens_left: int


class ServeCheckRecord(BaseModel):
    """Whether a model fits, on each number of nodes that was asked for; `parameters` and `weight_bytes` are null when
    they are unknown."""

    schema_: Literal["sparkrack.serve-check/1"] = Field(
        "sparkrack.serve-check/1", alias="schema", serialization_alias="schema"
    )
    config: Text
    parameters: int | None
    weight_bytes: int | None
    weights_from: WeightSource
    context: int
    sequences: int
    kv_format: KvFormat
    fits: tuple[FitRecord, ...]


def recorded_model(rack: Rack, name: str) -> tuple[ModelShape, float | None]:
    """Return the shape of a model of rack.yaml and the bytes of its weights, as recorded. Raises ModelConfigError, and
    CommandError for a name that is not a model, or has no record."""
    if name not in rack.models:
        known = f"its models are {', '.join(rack.models)}" if rack.models else "it has no models"
        raise CommandError(f"{rack.source} has no model {printable_line(name)}; {known}")
    lock = lock_file.lock_path(rack.source)
    record = model_lock.read_declared(lock, rack.models).get(name)
    if record is None:
        raise CommandError(f"{lock} has no record of {name}; `sparkrack apply` fetches the model and records it")
    return record_shape(name, record), weight_size(record)


def model_record(
    config: str,
    shape: ModelShape,
    weights: float | None,
    source: WeightSource,
    demand: Demand,
    fits: dict[int, Fit],
) -> ServeCheckRecord:
    return ServeCheckRecord(
        config=config,
        parameters=sum(shape.parameters.values()) or None,
        weight_bytes=round(size) if (size := size_of_weights(shape, weights)) is not None else None,
        weights_from=source,
        context=demand.context,
        sequences=demand.sequences,
        kv_format=demand.kv_format,
        fits=tuple(
            FitRecord(
                nodes=count,
                tensor_parallel=one.parallel.tensor,
                pipeline_parallel=one.parallel.pipeline,
                verdict=one.verdict,
                reason=one.reason,
                weights=None if "weights" in one.unknown else round(one.weights, 2),
                kv=None if "cache" in one.unknown else round(one.kv, 2),
                state=None if "cache" in one.unknown else round(one.state, 2),
                overhead=one.overhead,
                total=round(one.total, 2),
                tokens_left=one.context_left,
            )
            for count, one in fits.items()
        ),
    )


def size_of_weights(shape: ModelShape, weights: float | None) -> float | None:
    """Return the bytes of all weights, None when they are unknown."""
    if weights is not None:
        return weights
    return None if "weights" in shape.unknown else weight_bytes(shape)
