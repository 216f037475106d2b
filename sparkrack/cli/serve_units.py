"""What `sparkrack serve check` finds of the units of rack.yaml, from the lock file beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import click
from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

from core.model import Rack, image_lock, lock_file, model_lock
from core.model.errors import printable_line
from core.model.role import reserved_gib
from core.util.records import Text
from core.util.tables import print_whole
from serving import calibration
from serving.engines.memory_fit import GIB, MEMORY_GIB, Parallel, unknown_reason
from serving.engines.model_shape import ModelConfigError
from serving.fit import (
    OverheadSource,
    UnitFit,
    counted_calibration,
    fitting_counts,
    parallel_of,
    record_shape,
    unit_fit,
    usual_parallel,
    weight_size,
)
from serving.options import ServedUnit

_SOURCES = {
    "measured": "measured at the last good start",
    "declared": "as declared",
    "default": "a default that nothing measured",
}


class UnitFitRecord(BaseModel):
    """The memory of the fullest node of a unit in GiB; the figures are null when they are unknown.

    `fits`: accepted is a no, or an unknown, that fit.override overrides; with unknown the total is what is known of it.
    `host`: what options take of the host's memory, which is the same memory. `allowed`: what the unit lets the engine
    take of a node. `weights_from`: the lock file, or counted from the configuration where it has no sizes.
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
    weights_from: Literal["lock file", "config"] | None = None
    kv: float | None = None
    state: float | None = None
    overhead: float | None = None
    overhead_from: OverheadSource | None = None
    host: float | None = None
    total: float | None = None
    allowed: float | None = None
    tokens_left: int | None = None
    not_calibrated: Text = ""


class ServeUnitsRecord(BaseModel):
    """Whether the units of a rack file fit. `reserved`: GiB of each node that its crash kernel keeps."""

    schema_: Literal["sparkrack.serve-units/1"] = Field("sparkrack.serve-units/1", serialization_alias="schema")
    file: Text
    reserved: float = 0.0
    units: tuple[UnitFitRecord, ...]


def check_units(rack: Rack, units: Iterable[ServedUnit], node_count: int | None) -> ServeUnitsRecord:
    """Compute whether units fit.

    Args:
        rack: the rack.
        units: some of its units.
        node_count: another number of nodes than that of each unit, with its usual split; None for their own.
    """
    lock = lock_file.lock_path(rack.source)
    records, calibrations, images = model_lock.read(lock), calibration.read(lock), image_lock.known_ids(lock)
    reserved = reserved_gib(lambda key: getattr(rack, key))
    return ServeUnitsRecord(
        file=str(rack.source),
        reserved=reserved,
        units=tuple(
            _record(
                unit,
                records.get(unit.model),
                calibrations.get(unit.name),
                images.get(unit.image),
                node_count,
                reserved,
            )
            for unit in units
        ),
    )


def _record(
    unit: ServedUnit,
    record: model_lock.ModelRecord | None,
    measured: calibration.Calibration | None,
    image: str | None,
    node_count: int | None,
    reserved: float,
) -> UnitFitRecord:
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
    if record is None:
        return found
    try:
        shape = record_shape(unit.model, record)
    except ModelConfigError as error:
        return found.model_copy(update={"reason": str(error)})
    weights = weight_size(record)
    counted, not_calibrated = counted_calibration(unit, record, image, measured, split)
    made = unit_fit(unit, shape, weights, split, counted, reserved)
    accepted = unit.fit and not made.fits and not made.fit.blockers and not node_count
    fits = "accepted" if accepted else made.verdict
    left = (made.allowed - made.fit.total) * GIB / made.fit.token_bytes if made.fit.token_bytes else 0
    unknown = made.fit.unknown
    return found.model_copy(
        update={
            "fits": fits,
            "reason": _reason(
                unit, made, fitting_counts(unit, shape, weights, reserved=reserved), accepted=fits == "accepted"
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


def _reason(unit: ServedUnit, made: UnitFit, counts: list[int], *, accepted: bool) -> str:
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


def show_units(found: ServeUnitsRecord) -> None:
    """Print the units as a table, and below it where the figures come from."""
    table = Table(box=None, pad_edge=False)
    table.add_column("unit", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("split", no_wrap=True)
    for title in ("weights", "kv", "state", "overhead", "host", "GiB a node", "allowed"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("tokens left", justify="right", no_wrap=True)
    for one in found.units:
        sums = (one.weights, one.kv, one.state, one.overhead, one.host, one.total, one.allowed)
        table.add_row(
            one.unit,
            str(one.nodes),
            str(Parallel(one.tensor_parallel, one.pipeline_parallel)),
            *("-" if part is None else f"{part:.1f}" for part in sums),
            one.fits,
            "-" if one.tokens_left is None else str(one.tokens_left),
        )
    print_whole(Console(highlight=False), table)
    for line in _lines(found):
        click.echo(printable_line(line))


def _lines(found: ServeUnitsRecord) -> Iterator[str]:
    for one in found.units:
        if one.overhead is not None and one.overhead_from:
            weights = "from the lock file" if one.weights_from == "lock file" else "counted from the configuration"
            yield f"{one.unit}: weights {weights}; overhead {one.overhead:.1f} GiB, {_SOURCES[one.overhead_from]}"
        if one.not_calibrated:
            yield f"{one.unit}: the calibration in the lock file does not count: {one.not_calibrated}"
        if one.reason:
            yield f"{one.unit}: {one.fits}: {one.reason}"
    kept = f", of which blackbox.kdump reserves {found.reserved:.2f}" if found.reserved else ""
    whole = "what is left" if kept else "it"
    share = f"the memory of a unit is the share of {whole} that its engine may take"
    yield f"A GB10 node has {MEMORY_GIB} GiB{kept}; {share}"
