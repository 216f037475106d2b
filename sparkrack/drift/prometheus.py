"""Drift as metrics, for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sparkrack.drift.findings import DRIFT, Drift, FindingKind


class KeptDrill(Protocol):
    """A drill of the black box, as much of it as is a metric."""

    @property
    def node(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def made(self) -> datetime: ...
    @property
    def passed(self) -> bool: ...


class _Metrics(Collector):
    def __init__(self, drift: Drift, drills: Sequence[KeptDrill]) -> None:
        self.drift = drift
        self.drills = drills

    def collect(self) -> Iterator[GaugeMetricFamily]:
        rack = self.drift.rack
        found = GaugeMetricFamily(
            "sparkrack_drift",
            "Differences between a host and rack.yaml; no sample where it is unknown.",
            labels=("rack", "host", "role", "kind"),
        )
        extras = GaugeMetricFamily(
            "sparkrack_unmanaged",
            "What is on a host and not in rack.yaml. No drift.",
            labels=("rack", "host", "role"),
        )
        unknown = GaugeMetricFamily(
            "sparkrack_unknown", "1 for a host of which not all is known.", labels=("rack", "host")
        )
        for machine in self.drift.hosts:
            unknown.add_metric((rack, machine.name), not machine.complete)
            for looked in machine.roles:
                for kind in (*DRIFT, FindingKind.UNMANAGED):
                    number = sum(finding.kind is kind for finding in looked.findings)
                    if not (number or machine.complete):
                        continue  # a zero would end an alert whose cause is unknown
                    if kind is FindingKind.UNMANAGED:
                        extras.add_metric((rack, machine.name, looked.role), number)
                    else:
                        found.add_metric((rack, machine.name, looked.role, kind), number)
        last = GaugeMetricFamily(
            "sparkrack_drift_last_run_timestamp_seconds", "When it was last looked, in Unix time.", labels=("rack",)
        )
        last.add_metric((rack,), self.drift.made.timestamp())
        yield from (found, extras, unknown, last)
        if self.drills:
            yield from self._drills(rack)

    def _drills(self, rack: str) -> Iterator[GaugeMetricFamily]:
        labels = ("rack", "host", "level")
        when = GaugeMetricFamily(
            "sparkrack_drill_timestamp_seconds", "When the black box was last drilled so, in Unix time.", labels=labels
        )
        passed = GaugeMetricFamily("sparkrack_drill_passed", "1 when that drill passed.", labels=labels)
        for one in self.drills:
            when.add_metric((rack, one.node, one.level), one.made.timestamp())
            passed.add_metric((rack, one.node, one.level), one.passed)
        yield from (when, passed)


def prometheus(drift: Drift, drills: Sequence[KeptDrill] = ()) -> str:
    """Return the metrics in Prometheus' text format. Zeros are included, so that alerts end. `drills`: the newest of
    each node and level.
    """
    return generate_latest(_Metrics(drift, drills)).decode()
