"""Rules for a unit whose engine says nothing of its memory: the sum of the sizes that are declared, or of files."""

from __future__ import annotations

from collections.abc import Iterator

from core.model.errors import RuleViolation
from core.model.model_lock import ModelRecord
from serving.engines.llama_cpp.rules import parts
from serving.engines.memory_fit import unknown_reason
from serving.fit import UnitFit
from serving.options import ServedUnit


def rules(unit: ServedUnit, record: ModelRecord | None, found: UnitFit | None) -> Iterator[RuleViolation]:
    """Yield what is missing, and what is too large.

    Args:
        unit: the unit.
        record: its model in the lock file, None without one that is of the rack file.
        found: its memory.
    """
    if unit.gguf and record:
        yield from _check_missing_parts(unit, unit.gguf, [file.path for file in record.files])
    if found and found.verdict == "no" and not unit.fit:
        what = f"{unit.model} needs {found.fit.total:.1f} GiB a node ({found.sum}), and may have {found.allowed:.1f}"
        right = "spread it over more nodes, or declare smaller sizes; or give the reason why it fits at fit.override"
        yield RuleViolation(("memory",) if unit.memory else ("model",), what, right)


def _check_missing_parts(unit: ServedUnit, gguf: str, paths: list[str]) -> Iterator[RuleViolation]:
    if lacks := [part for part in parts(gguf) if part not in paths]:
        firsts = sorted(path for path in paths if path.endswith(".gguf") and parts(path)[0] == path)
        right = f"write one that it has, like {firsts[0]}" if firsts else "list it at files of that model"
        yield RuleViolation(("gguf",), f"the lock file has no {lacks[0]} of {unit.model}", right)


def notes(unit: ServedUnit, record: ModelRecord | None, found: UnitFit) -> Iterator[RuleViolation]:
    """Yield how far the sum is known. Same arguments."""
    if "weights" in found.fit.unknown:
        if unit.custom:
            what, right = "the bytes that a node loads are not declared", "write custom.weights, and overhead"
        elif record is None:
            what, right = "the lock file has no record of it", "`sparkrack apply` fetches the model and records it"
        else:
            what, right = "the lock file lacks a file that it reads", "`sparkrack apply` fetches and records it"
        yield RuleViolation(("model",), f"whether {unit.model} fits is unknown: {what}", right)
    elif unit.fit and not found.fits:
        what = f"{unit.model} needs {found.fit.total:.1f} GiB a node ({found.sum}), and may have {found.allowed:.1f}"
        yield RuleViolation(("model",), what, f"accepted by fit.override: {unit.fit.override}")
    elif found.fit.unknown:
        what, _, right = unknown_reason(found.fit.unknown).rpartition("; ")
        yield RuleViolation(("model",), f"whether {unit.model} fits is unknown: {what}", f"{right}, like 4G")
    else:
        what = f"whether {unit.model} fits is as true as the sizes that are declared: {found.sum} GiB a node"
        yield RuleViolation(("model",), what, "measure it at its first start, with `free` before and after")
