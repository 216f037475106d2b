"""The fit of a unit whose engine says nothing of its memory: the sum of the sizes that are declared, or of files."""

from __future__ import annotations

from collections.abc import Iterator

from core.model.errors import RuleViolation
from core.model.fields import mebibytes
from core.model.model_lock import ModelRecord
from serving.container_paths import INSIDE_MODELS
from serving.engines.llama_cpp.rules import parts
from serving.engines.memory_fit import GIB, HIGHEST_SHARE, MEMORY_GIB, OVERHEAD_GIB, Fit
from serving.engines.registry import ENGINES
from serving.fit import Further, OverheadSource, UnitFit, parallel_of
from serving.options import ServedUnit


def declared_fit(
    unit: ServedUnit, record: ModelRecord | None, further: Further, reserved: float = 0.0
) -> UnitFit | None:
    """Return the sum of a unit; None for an engine whose memory is computed.

    Args:
        unit: the unit.
        record: its model in the lock file, None without one.
        further: its further models there, by name.
        reserved: GiB of a node that no program gets.
    """
    count = ENGINES[unit.engine].weights
    if count is None:
        return None
    records = {unit.model: record, **further}
    sizes = {
        f"{INSIDE_MODELS}/{name}/{file.path}": file.size for name, one in records.items() if one for file in one.files
    }
    weights = count(unit, sizes)
    found = Fit(
        parallel=parallel_of(unit),
        weights=(weights or 0.0) / GIB,
        kv=mebibytes(unit.kv) / 1024 if unit.kv else 0.0,
        state=0.0,
        overhead=mebibytes(unit.overhead) / 1024 if unit.overhead else OVERHEAD_GIB,
        blockers=(),
        token_bytes=0.0,
        unknown={} if weights is not None else {"weights": "the bytes that a node loads are not known"},
    )
    memory = MEMORY_GIB - reserved
    source: OverheadSource = "declared" if unit.overhead else "default"
    return UnitFit(found, memory, (unit.memory or HIGHEST_SHARE) * memory, source)


def needed_bytes(unit: ServedUnit, record: ModelRecord, further: Further) -> int | None:
    """Return what a node must have free; None where nothing is declared, and for an engine whose memory is computed."""
    found = declared_fit(unit, record, further)
    return None if found is None or found.fit.unknown else int(found.fit.total * GIB)


def rules(unit: ServedUnit, record: ModelRecord | None, further: Further, reserved: float) -> Iterator[RuleViolation]:
    """Yield what is too large."""
    if unit.gguf and record:
        yield from _missing(unit, unit.gguf, [file.path for file in record.files])
    found = declared_fit(unit, record, further, reserved)
    if found and found.verdict == "no" and not unit.fit:
        what = f"{unit.model} needs {found.fit.total:.1f} GiB a node ({found.sum}), and may have {found.allowed:.1f}"
        right = "spread it over more nodes, or declare smaller sizes; or give the reason why it fits at fit.override"
        yield RuleViolation(("memory",) if unit.memory else ("model",), what, right)


def _missing(unit: ServedUnit, gguf: str, paths: list[str]) -> Iterator[RuleViolation]:
    if lacks := [part for part in parts(gguf) if part not in paths]:
        firsts = sorted(path for path in paths if path.endswith(".gguf") and parts(path)[0] == path)
        right = f"write one that it has, like {firsts[0]}" if firsts else "list it at files of that model"
        yield RuleViolation(("gguf",), f"the lock file has no {lacks[0]} of {unit.model}", right)


def notes(unit: ServedUnit, record: ModelRecord | None, further: Further, reserved: float) -> Iterator[RuleViolation]:
    """Yield how far the sum is known."""
    found = declared_fit(unit, record, further, reserved)
    if found is None:
        return
    if found.fit.unknown:
        if unit.custom:
            what, right = "the bytes that a node loads are not declared", "write custom.weights, and overhead"
        elif record is None:
            what, right = "the lock file has no record of it", "`sparkrack apply` fetches the model and records it"
        else:
            what, right = (
                "the lock file lacks a file that args names",
                "correct the path, or list it at models.NAME.files",
            )
        yield RuleViolation(("model",), f"whether {unit.model} fits is unknown: {what}", right)
    elif unit.fit and not found.fits:
        what = f"{unit.model} needs {found.fit.total:.1f} GiB a node ({found.sum}), and may have {found.allowed:.1f}"
        yield RuleViolation(("model",), what, f"accepted by fit.override: {unit.fit.override}")
    else:
        what = f"whether {unit.model} fits is as true as the sizes that are declared: {found.sum} GiB a node"
        yield RuleViolation(("model",), what, "measure it at its first start, with `free` before and after")
