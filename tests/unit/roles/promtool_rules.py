"""Judgement of rules by promtool: series over time, the alerts that are expected, and what promtool says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.model import Rack
from tests.unit.roles.healthy_watch import ALERTS, HEALTHY, RULES, groups
from tests.unit.roles.watch_tools import call


@dataclass(frozen=True)
class Failure:
    """An alert, the series that differ from a healthy rack, when it is looked at, and what it says."""

    alert: str
    series: dict[str, str | None]
    minutes: int
    labels: dict[str, str]
    summary: str


def F(alert: str, series: Mapping[str, str | None], minutes: int, labels: dict[str, str], summary: str) -> Failure:  # noqa: N802
    return Failure(alert, dict(series), minutes, labels, summary)


def values(text: str, minutes: int) -> str:
    """A series in promtool's notation: `V` stays, `V+S` and `V-S` change by S each sample, `VxN W` turns to W."""
    return f"{text}x{4 * minutes + 4}"  # one each 15 s


def series(changed: dict[str, str | None], minutes: int) -> list[dict[str, str]]:
    assert not {name for name, value in changed.items() if value is None} - HEALTHY.keys()
    found = {name: value for name, value in {**HEALTHY, **changed}.items() if value is not None}
    return [{"series": name, "values": values(value, minutes)} for name, value in found.items()]


def expected(failure: Failure) -> dict[str, Any]:
    rule = ALERTS[failure.alert]
    return {
        "exp_labels": {**failure.labels, **rule["labels"]},
        "exp_annotations": {"summary": failure.summary, "runbook": rule["annotations"]["runbook"]},
    }


def judged(folder: Path, test: dict[str, Any], found: Rack | None = None) -> str:
    """What promtool says against a test; empty when all is as expected."""
    # Evaluations are what a test costs: of the alerts, only those that are looked at. Samples come every 15 s all the
    # same.
    asked = {one["alertname"] for one in test["alert_rule_test"]}
    parts = [
        group | {"rules": [rule for rule in group["rules"] if rule.get("alert", next(iter(asked))) in asked]}
        for group in (groups(found) if found else RULES)
    ]
    (folder / "sparkrack-rules.yml").write_text(json.dumps({"groups": [part for part in parts if part["rules"]]}))
    far = any(int(one["eval_time"].removesuffix("m")) > 29 for one in test["alert_rule_test"])
    document = {
        "rule_files": ["sparkrack-rules.yml"],
        "evaluation_interval": "1m" if far else "15s",
        "tests": [test],
    }
    (folder / "test.yml").write_text(json.dumps(document))
    done = call("promtool", "test", "rules", folder / "test.yml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def silent(folder: Path, alert: str, changed: dict[str, str | None], found: Rack | None = None) -> str:
    """What promtool says when an alert is silent all the time; empty when it is."""
    looked = [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []} for minutes in (2, 20, 70, 139)]
    return judged(folder, {"interval": "15s", "input_series": series(changed, 139), "alert_rule_test": looked}, found)
