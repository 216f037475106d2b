"""Results of `sparkrack drift` and `sparkrack drill`: metrics for the server of the watch, files of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from core.model import Rack
from core.ssh.node_shells import ScriptError
from core.util.atomic_file import write_atomic
from core.util.paths import state_folder
from sparkrack.drift.findings import Drift
from sparkrack.drift.history import store_run
from sparkrack.drift.prometheus import drift_metrics, drill_metrics
from sparkrack.status.drills import DrillResult, latest_drills
from sparkrack.status.history import StatusHistoryError
from sparkrack.watch import delivery
from sparkrack.watch.delivery import MetricsFile

DRIFT_FILE = "sparkrack.prom"


Warn = Callable[[str], None]
"""Prints why something was not delivered."""


def deliver_drift(rack: Rack, made: Drift, warn: Warn) -> None:
    """Deliver a run of the whole rack, and the kept drills, since their own delivery may have failed. It never changes
    an exit code.
    """
    node = delivery.receiver(rack)
    if node is None:
        return
    unreached = next((one.reason for one in made.hosts if one.name == node.name and one.reason), "")
    if unreached:
        warn(_not_delivered(f"{node.name}: {unreached}"))
        return
    drift = MetricsFile(DRIFT_FILE, drift_metrics(made, delivery.ran_on()), made.made)
    _deliver_files(rack, [drift, *map(_drill_file, _kept_drills(rack.rack, warn))], warn)


def deliver_drills(rack: Rack, drills: Sequence[DrillResult], warn: Warn) -> None:
    """Deliver drills, each in a file of its own: that of another operator may be the newest of another node."""
    _deliver_files(rack, [_drill_file(one) for one in drills], warn)


def local_metrics(rack: Rack, made: Drift, warn: Warn) -> str:
    """Return the metrics for a file of this machine; with the drills where these are not delivered."""
    text = drift_metrics(made, delivery.ran_on())
    # An exporter must not have one series twice.
    return text if delivery.receiver(rack) else text + drill_metrics(_kept_drills(rack.rack, warn), delivery.ran_on())


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


def _drill_file(drill: DrillResult) -> MetricsFile:
    name = f"sparkrack-drill-{drill.node}-{drill.level}.prom"
    return MetricsFile(name, drill_metrics([drill], delivery.ran_on()), drill.made)


def _deliver_files(rack: Rack, files: Sequence[MetricsFile], warn: Warn) -> None:
    try:
        delivery.deliver(rack, files)
    except ScriptError as fault:
        warn(_not_delivered(str(fault)))


def _not_delivered(why: str) -> str:
    return f"warning: the metrics were not delivered to the server of the watch: {why}"


def _kept_drills(rack: str, warn: Warn) -> Sequence[DrillResult]:
    """Return the kept drills. Those that cannot be read are reported, and leave no metric."""
    try:
        return latest_drills(state_folder(rack))
    except StatusHistoryError as fault:
        warn(f"Error: no metric of a drill: {fault}")
        return ()
