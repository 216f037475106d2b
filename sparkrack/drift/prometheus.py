"""Drift and drills as metrics, for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sparkrack.drift.findings import DRIFT, Drift, FindingKind

if TYPE_CHECKING:
    from sparkrack.status.drills import DrillResult

_COMMON = ("ran_on", "rack")
"""Labels of every series."""


class _DriftMetrics(Collector):
    def __init__(self, drift: Drift, ran_on: str) -> None:
        self.drift = drift
        self.ran_on = ran_on

    def collect(self) -> Iterator[GaugeMetricFamily]:
        common = (self.ran_on, self.drift.rack)
        found = GaugeMetricFamily(
            "sparkrack_drift",
            "Differences between a host and rack.yaml; no sample where it is unknown.",
            labels=(*_COMMON, "host", "role", "kind"),
        )
        extras = GaugeMetricFamily(
            "sparkrack_unmanaged",
            "What is on a host and not in rack.yaml. No drift.",
            labels=(*_COMMON, "host", "role"),
        )
        unknown = GaugeMetricFamily(
            "sparkrack_unknown", "1 for a host of which not all is known.", labels=(*_COMMON, "host")
        )
        for machine in self.drift.hosts:
            unknown.add_metric((*common, machine.name), not machine.complete)
            for looked in machine.roles:
                for kind in (*DRIFT, FindingKind.UNMANAGED):
                    number = sum(finding.kind is kind for finding in looked.findings)
                    if not (number or machine.complete):
                        continue  # a zero would end an alert whose cause is unknown
                    if kind is FindingKind.UNMANAGED:
                        extras.add_metric((*common, machine.name, looked.role), number)
                    else:
                        found.add_metric((*common, machine.name, looked.role, kind), number)
        last = GaugeMetricFamily(
            "sparkrack_drift_last_run_timestamp_seconds", "When it was last looked, in Unix time.", labels=_COMMON
        )
        last.add_metric(common, self.drift.made.timestamp())
        yield from (found, extras, unknown, last)


class _DrillMetrics(Collector):
    def __init__(self, drills: Sequence[DrillResult], ran_on: str) -> None:
        self.drills = drills
        self.ran_on = ran_on

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = (*_COMMON, "host", "level")
        when = GaugeMetricFamily(
            "sparkrack_drill_timestamp_seconds", "When the black box was last drilled so, in Unix time.", labels=labels
        )
        passed = GaugeMetricFamily("sparkrack_drill_passed", "1 when that drill passed.", labels=labels)
        for one in self.drills:
            place = (self.ran_on, one.rack, one.node, one.level)
            when.add_metric(place, one.made.timestamp())
            passed.add_metric(place, one.passed)
        yield from (when, passed)


def drift_metrics(drift: Drift, ran_on: str) -> str:
    """Return the metrics in Prometheus' text format. Zeros are included, so that alerts end. `ran_on`: the machine that
    looked.
    """
    return generate_latest(_DriftMetrics(drift, ran_on)).decode()


def drill_metrics(drills: Sequence[DrillResult], ran_on: str) -> str:
    """Return the same of drills, the newest of each node and level; empty for none."""
    return generate_latest(_DrillMetrics(drills, ran_on)).decode() if drills else ""
