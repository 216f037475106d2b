"""An engine that the owner declares: the command of a rank with placeholders, its metrics, and its sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from serving.engines.custom.rules import PLACEHOLDER, advice, rules
from serving.engines.engine import INSIDE_KEY, KeyForm, Progress, RankPlace, ServingEngine

if TYPE_CHECKING:
    from serving.options import ServedUnit, ServingCustom


def _declared_engine(unit: ServedUnit) -> ServingCustom:
    assert unit.custom  # noqa: S101 - the section of the unit asks for it
    return unit.custom


def argv(place: RankPlace) -> list[str]:
    """Return the command of a rank, with a value for each placeholder."""
    declared, unit = _declared_engine(place.unit), place.unit
    values = {
        "model": place.model,
        "name": unit.model,
        "rank": str(place.rank),
        "nodes": str(place.ranks),
        "head": str(place.head),
        "meeting": str(place.meeting),
        "host": str(place.api),
        "port": str(unit.api.port),
        "context": str(unit.context),
        "sequences": str(unit.sequences),
    }
    words = (declared.worker_command if place.rank else None) or declared.command
    return [re.sub(PLACEHOLDER, lambda found: values[found[1]], word) for word in words]


def key(unit: ServedUnit) -> KeyForm:
    """Return how the engine gets its key."""
    form = _declared_engine(unit).key
    if form is None:
        return KeyForm()
    return KeyForm(variable=form.variable) if form.variable else KeyForm(option=form.option or "", path=INSIDE_KEY)


def progress(unit: ServedUnit) -> Progress:
    """Return the metrics that the owner names."""
    declared = _declared_engine(unit)
    return Progress(counters=declared.progress, requests=declared.requests)


def looks(unit: ServedUnit, rank: int, _ranks: int) -> Sequence[str]:
    """Return what the gate looks for in the image: the program of the rank."""
    declared = _declared_engine(unit)
    words = (declared.worker_command if rank else None) or declared.command
    return (f"program:{words[0]}",)


def weights(unit: ServedUnit, _files: Mapping[str, int], _named: Sequence[str]) -> float | None:
    """Return the bytes that each node loads; None where they are not declared."""
    size = _declared_engine(unit).weights_bytes
    return float(size) if size else None


ENGINES = (
    ServingEngine(
        name="custom",
        family="custom",
        title="custom",
        argv=argv,
        key=key,
        progress=progress,
        looks=looks,
        known_paths=False,
        weights=weights,
        rules=rules,
        advice=advice,
    ),
)
