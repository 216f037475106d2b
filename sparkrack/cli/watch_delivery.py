"""Metrics of `sparkrack drift` and `sparkrack drill`, for the server of the watch. They never change an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from core.model import Rack
    from sparkrack.drift.findings import Drift
    from sparkrack.status.drills import DrillResult
    from sparkrack.watch.delivery import MetricsFile

DRIFT_FILE = "sparkrack.prom"


def deliver_drift(rack: Rack, made: Drift) -> None:
    """Deliver a run of the whole rack, and the kept drills, since their own delivery may have failed."""
    from sparkrack.drift.prometheus import drift_metrics
    from sparkrack.watch import delivery

    node = delivery.receiver(rack)
    if node is None:
        return
    unreached = next((one.reason for one in made.hosts if one.name == node.name and one.reason), "")
    if unreached:
        _not_delivered(f"{node.name}: {unreached}")
        return
    drift = delivery.MetricsFile(DRIFT_FILE, drift_metrics(made, delivery.ran_on()), made.made)
    _deliver(rack, [drift, *map(_drill_file, _drills(rack.rack))])


def deliver_drills(rack: Rack, drills: Sequence[DrillResult]) -> None:
    """Deliver drills, each in a file of its own: that of another operator may be the newest of another node."""
    _deliver(rack, [_drill_file(one) for one in drills])


def local_metrics(rack: Rack, made: Drift) -> str:
    """Return the metrics for a file of this machine; with the drills where these are not delivered."""
    from sparkrack.drift.prometheus import drift_metrics, drill_metrics
    from sparkrack.watch import delivery

    text = drift_metrics(made, delivery.ran_on())
    # An exporter must not have one series twice.
    return text if delivery.receiver(rack) else text + drill_metrics(_drills(rack.rack), delivery.ran_on())


def _drill_file(drill: DrillResult) -> MetricsFile:
    from sparkrack.drift.prometheus import drill_metrics
    from sparkrack.watch import delivery

    name = f"sparkrack-drill-{drill.node}-{drill.level}.prom"
    return delivery.MetricsFile(name, drill_metrics([drill], delivery.ran_on()), drill.made)


def _deliver(rack: Rack, files: Sequence[MetricsFile]) -> None:
    from sparkrack.watch import delivery

    try:
        delivery.deliver(rack, files)
    except delivery.DeliveryError as fault:
        _not_delivered(str(fault))


def _not_delivered(why: str) -> None:
    click.echo(f"warning: the metrics were not delivered to the server of the watch: {why}", err=True)


def _drills(rack: str) -> Sequence[DrillResult]:
    """Return the kept drills. Those that cannot be read are reported, and leave no metric."""
    from core.util.paths import state_folder
    from sparkrack.status.drills import latest_drills
    from sparkrack.status.history import StatusHistoryError

    try:
        return latest_drills(state_folder(rack))
    except StatusHistoryError as fault:
        click.echo(f"Error: no metric of a drill: {fault}", err=True)
        return ()
