"""Metrics, as Prometheus' own parser reads them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.model.selection import ROLES
from core.util.event import EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.drift.prometheus import drift_metrics, drill_metrics
from sparkrack.engine.plan import Plan
from sparkrack.status.drills import DrillLevel, DrillResult
from tests.unit.drift.plans import EVIL, MADE, MIXED, machine, plan


def samples(whole: Plan, metric: str) -> dict[tuple[str, ...], float]:
    """Values by what tells them apart, in the order of its labels; the rack is the same for all."""
    (found,) = [
        one for one in text_string_to_metric_families(drift_metrics(drift_of(whole), "laptop")) if one.name == metric
    ]
    assert found.type == "gauge"
    assert found.documentation
    values = {}
    for sample in found.samples:
        assert sample.labels.pop("rack") == "lab"
        assert sample.labels.pop("ran_on") == "laptop"
        values[tuple(sample.labels[key] for key in ("host", "role", "kind") if key in sample.labels)] = sample.value
    assert len(values) == len(found.samples)
    return values


NODE = [role for role in ROLES if role != "switch"]


def test_zeros_are_reported() -> None:
    found = samples(plan(machine("spark1")), "sparkrack_drift")
    assert found == {("spark1", role, kind): 0 for role in NODE for kind in ("declared", "broken", "outlier")}
    assert samples(plan(machine("spark1")), "sparkrack_unmanaged") == {("spark1", role): 0 for role in NODE}


def test_values() -> None:
    found = {labels: value for labels, value in samples(MIXED, "sparkrack_drift").items() if value}
    assert found == {
        ("spark1", "preflight", "outlier"): 1,
        ("spark1", "access", "declared"): 1,
        ("spark1", "memory", "declared"): 1,
        ("spark1", "fabric", "broken"): 1,
        ("spark2", "rdma", "declared"): 1,
        ("crs812", "switch", "declared"): 1,
    }
    extras = {labels: value for labels, value in samples(MIXED, "sparkrack_unmanaged").items() if value}
    assert extras == {("spark1", "docker"): 1, ("crs812", "switch"): 1}
    assert samples(MIXED, "sparkrack_unknown") == {("spark1",): 0, ("spark2",): 0, ("spark3",): 1, ("crs812",): 0}
    (last,) = samples(MIXED, "sparkrack_drift_last_run_timestamp_seconds").values()
    assert last == pytest.approx(MADE.timestamp(), abs=1e-3)


def test_what_is_not_known_is_not_a_zero() -> None:
    half = plan(machine("spark1", ("fabric", EventKind.CHANGE, "x"), ("rdma", EventKind.UNKNOWN, "y")))
    assert samples(half, "sparkrack_drift") == {("spark1", "fabric", "declared"): 1}
    assert samples(half, "sparkrack_unmanaged") == {}
    assert samples(half, "sparkrack_unknown") == {("spark1",): 1}
    assert not [labels for labels in samples(MIXED, "sparkrack_drift") if labels[0] == "spark3"]


def test_labels_are_quoted() -> None:
    evil = 'a\n"b\\'
    whole = plan(machine("spark1", (evil, EventKind.CHANGE, "x")))
    assert samples(whole, "sparkrack_drift")["spark1", evil, "declared"] == 1
    assert samples(EVIL, "sparkrack_unknown") == {("spark1",): 1, ("spark2",): 1}


def test_drills_of_the_black_box() -> None:
    made = datetime(2026, 11, 25, 1, 2, 3, tzinfo=UTC)
    kept = [
        DrillResult(run="x", rack="two", node="spark1", level=level, made=made, passed=passed, reason="r")
        for level, passed in ((DrillLevel.PANIC, True), (DrillLevel.MARK, False))
    ]
    text = drill_metrics(kept, "laptop")
    values = {
        (one.name, sample.labels["level"]): sample.value
        for one in text_string_to_metric_families(text)
        for sample in one.samples
        if one.name.startswith("sparkrack_drill")
    }
    assert values == {
        ("sparkrack_drill_timestamp_seconds", "panic"): made.timestamp(),
        ("sparkrack_drill_timestamp_seconds", "mark"): made.timestamp(),
        ("sparkrack_drill_passed", "panic"): 1.0,
        ("sparkrack_drill_passed", "mark"): 0.0,
    }
    assert {sample.labels["ran_on"] for one in text_string_to_metric_families(text) for sample in one.samples} == {
        "laptop"
    }
    assert drill_metrics([], "laptop") == ""
