"""Measurement of a running unit against the baseline that this machine keeps, and the record of it."""

from __future__ import annotations

from pathlib import Path

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from core.util.screen import Screen
from serving.options import select_unit
from sparkrack.serving import bench_record as records
from sparkrack.serving.bench import ANSWER_SECONDS, CALL_SECONDS, BenchError, UnitHead, matrix_of, measure
from sparkrack.serving.bench_record import Kind, ServeBenchRecord


def measure_against_baseline(
    rack: Rack, name: str, kind: Kind, screen: Screen, *, save: bool
) -> tuple[ServeBenchRecord, Path]:
    """Measure a running unit, compare it with its baseline, and keep the record on this machine.

    Args:
        rack: the rack that declares the unit.
        name: the name of the unit.
        kind: whether all cases are measured, or only the first.
        screen: shows the progress and the warnings.
        save: make the record the baseline if each measurement succeeds.

    Returns the record and the file that keeps it. Raises CommandError when the unit cannot be measured.
    """
    unit = select_unit(rack, name)
    try:
        matrix = matrix_of(unit, quick=kind == "quick")
    except BenchError as error:
        raise CommandError(str(error)) from None
    baseline = _read_baseline(rack, name, kind, screen, replace=save)
    head = unit.ranks(rack.nodes)[0]
    try:
        with open_shells(rack, [head], CALL_SECONDS + ANSWER_SECONDS) as shells:
            record = measure(rack, UnitHead(unit, head, shells[head]), kind, matrix, screen)
    except (BenchError, UnreachableError) as error:
        raise CommandError(printable_line(str(error))) from None
    record = records.compared(record, baseline)
    record = record.model_copy(update={"saved": save and record.complete})
    try:
        return record, records.keep(record)
    except OSError as error:
        raise CommandError(f"{records.folder(rack.rack, name)}: cannot be written: {error.strerror}") from None


def _read_baseline(rack: Rack, unit: str, kind: Kind, screen: Screen, *, replace: bool) -> ServeBenchRecord | None:
    """Return the baseline, before anything is measured. One that cannot be read is replaced by --save only."""
    try:
        return records.read_baseline(rack.rack, unit, kind)
    except records.BaselineError as error:
        if not replace:
            raise CommandError(f"{error}; measure with --save to replace it") from None
        screen.warn(f"warning: {error}; it is replaced")
        return None
