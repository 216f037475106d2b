"""The files that `sparkrack drift` keeps on this machine: the run itself, and its metrics for a collector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.model import Rack
from core.util.atomic_file import write_atomic
from sparkrack.drift.findings import Drift
from sparkrack.drift.history import store_run
from sparkrack.watch.metrics_delivery import Warn, local_metrics


def keep_results(rack: Rack, made: Drift, prom: Path | None, warn: Warn, *, history: bool) -> bool:
    """Keep the findings of a run, and its metrics in `prom` for a collector; return whether both could be written. What
    could not is reported as an error.
    """
    writes: dict[str, Callable[[], object]] = {"this run": lambda: store_run(made)} if history else {}
    if prom:
        writes[str(prom)] = lambda: write_atomic(prom, local_metrics(rack, made, warn), 0o644)
    failed = False
    for what, write in writes.items():
        try:
            write()
        except OSError as fault:
            warn(f"Error: {what} could not be kept: {fault}")
            failed = True
    return not failed
