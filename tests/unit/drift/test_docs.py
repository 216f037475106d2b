"""What docs/drift.md shows is what the program prints."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.util.event import EventKind, field_change
from sparkrack.drift.compare import compare_runs
from sparkrack.drift.findings import Drift, drift_of
from sparkrack.drift.render import show_drift
from sparkrack.drift.systemd_timer import units
from tests import generated
from tests.unit.drift.plans import MADE, MIXED, TIMER, machine, modified, plan, unreachable

DOCUMENT = "docs/drift.md"


def compared() -> Drift:
    """The example, and what came and went since half a day before."""
    earlier = plan(
        machine("spark1", ("fabric", field_change("enp1s0f1np1", "mtu", 1500, 9000))),
        *MIXED.hosts[1:],
        made=MADE - timedelta(hours=12),
    )
    now = drift_of(MIXED)
    return now.model_copy(update={"since": compare_runs(drift_of(earlier), now, "20261119T203005.123Z")})


def test_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    show_drift(compared())
    generated.check(DOCUMENT, "drift text", f"$ sparkrack drift --since 12h\n{capsys.readouterr().out}")


def test_json() -> None:
    fault = (
        "fabric",
        modified("/etc/netplan/60-sparkrack-fabric.yaml", "-      mtu: 1500", "+      mtu: 9000"),
    )
    few = plan(machine("spark1", fault), unreachable("spark2"), roles={"preflight", "fabric"})
    generated.check(DOCUMENT, "drift json", drift_of(few).model_dump_json(by_alias=True, indent=1) + "\n")


def test_metrics() -> None:
    from sparkrack.drift.prometheus import drift_metrics

    few = plan(
        machine("spark1", ("fabric", EventKind.BROKEN, "x")), unreachable("spark2"), roles={"preflight", "fabric"}
    )
    generated.check(DOCUMENT, "drift metrics", drift_metrics(drift_of(few), "laptop"))


def test_units() -> None:
    text = "\n".join(f"# /etc/systemd/system/{name}\n{text}" for name, text in units(TIMER).items())
    generated.check(DOCUMENT, "drift units", text)
