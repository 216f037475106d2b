"""What a coordinator keeps and answers of a unit: its record, the reports of ranks, and the status."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contact.nodes import free_port
from tests.serving.serve_modules import FOLDER, serve_lifecycle, serve_unit
from tests.serving.stepped_unit import SteppedUnit, gating, report
from tests.serving.test_unit_file import MINIMAL, written


@pytest.mark.parametrize(
    "values",
    [
        {"state": "asleep"},
        {"desired_state": "sideways"},
        {"name": "other"},
        {"generation": "1"},
        {"restarts": [True]},
        {"boots": [1]},
        {"generation": True},
        {"started": True},
        {"failed_gates": {"spark1": 1}},
        {"transitions": [1, 2]},
        {"transitions": [[1.0, "ready", 1]]},
        {"transitions": [["now", "ready", 1, "x"]]},
        {"transitions": [[1.0, "ready", 1, 2]]},
        {"unplanned": [1]},
        {"figures": {"ready_s": True}},
    ],
)
def test_a_garbled_record_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(serve_unit.ServeError, match="the state file"):
        serve_lifecycle.UnitRecord.of(values, "qwen")


def test_a_record_of_another_release_is_read_with_what_it_has(unit: SteppedUnit) -> None:
    unit.up()
    for name in unit.saved:
        values = {key: value for key, value in unit.saved.items() if key not in (name,)} | {"of a later release": [1]}
        record = serve_lifecycle.UnitRecord.of(values, "qwen")
        default = getattr(serve_lifecycle.UnitRecord("qwen"), name)
        assert getattr(record, name) == default
        if name != "generation":
            assert record.generation == 1


@pytest.mark.parametrize(
    "change",
    [
        {"state": 1},
        {"gate": [1, 1, "x"]},
        {"generation": True},
        {"clean": None},
        {"leaving": 0},
        {"hang": 5},
        {"gate": [1, True]},
        {"gate": [True, True, "x"]},
        {"rdma": []},
    ],
)
def test_a_garbled_report_is_refused(change: dict[str, Any]) -> None:
    right = {"state": "idle", "generation": 0, "boot": "b", "clean": True, "leaving": False, "kernel": "", "detail": ""}
    right |= {"gate": None, "version": ""}
    skew = serve_lifecycle.ClockSkew(0.0, 0.01)
    serve_lifecycle.AgentReport.of(right, 0.0, skew)
    with pytest.raises(serve_unit.ServeError, match="the report has no valid"):
        serve_lifecycle.AgentReport.of(right | change, 0.0, skew)


def test_a_report_is_taken_as_printable_lines(unit: SteppedUnit) -> None:
    printed = "a\nb" + "c" * 400
    message = {"state": "ended", "generation": 3, "boot": "b", "clean": False, "leaving": True, "kernel": printed}
    message |= {"detail": printed, "gate": [3, False, printed], "version": "v", "network": printed, "hang": printed}
    skew = serve_lifecycle.ClockSkew(0.5, 0.01)
    found = serve_lifecycle.AgentReport.of({**message, "rdma": {"d": 7}}, 12.0, skew)
    shown = "a b" + "c" * 294 + "..."
    assert (found.detail, found.kernel, found.hang, found.gate) == (shown, shown, shown, (3, False, shown))
    assert found.network == "a b" + "c" * 74 + "..."
    assert (found.state, found.generation, found.boot, found.clean, found.leaving) == ("ended", 3, "b", False, True)
    assert (found.heard, found.skew, found.version, found.rdma) == (12.0, skew, "v", {"d": 7})
    with pytest.raises(serve_unit.ServeError, match=r"^the report has no valid state, boot, clean$"):
        serve_lifecycle.AgentReport.of({**message, "state": 1, "boot": 2, "clean": 3}, 0.0, skew)


def test_a_start_records_boots_and_figures(unit: SteppedUnit) -> None:
    gating(unit)
    unit.record.figures, unit.record.remark, unit.record.proven = {"old": 1.0}, "old", 5.0
    unit.clock += 3.26
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert (unit.record.boots, unit.record.figures) == (["boot0", "boot1"], {"gates_s": 3.3})
    assert (unit.record.started, unit.record.proven, unit.record.remark) == (unit.clock, 0.0, "")
    unit.running = {0: 1, 1: 1}
    unit.pass_by(20)
    unit.lifecycle.proved(1, 0.51239, False, unit.clock, beside=["b", "c"], remark="sockets")
    assert unit.record.figures == {"gates_s": 3.3, "ready_s": 20.0, "completion_s": 0.512}
    assert (unit.record.proven, unit.record.remark) == (unit.clock, "sockets")
    assert unit.record.reason == "a completion gave the known answer, b, c; remark: sockets"
    unit.lifecycle.proved(1, 9.0, True, unit.clock, why="tokens")
    assert (unit.record.state, unit.record.reason) == ("busy", "tokens; remark: sockets")
    assert unit.record.figures["completion_s"] == 0.512


def test_20_transitions_are_kept_and_each_has_its_time_and_generation(unit: SteppedUnit) -> None:
    unit.clock = 1000.12345
    for _ in range(15):
        unit.up()
        unit.lifecycle.set_desired_state("down", False, unit.clock)
        unit.pass_by(8)
    kept = unit.saved["transitions"]
    assert len(kept) == 20
    assert [one[1] for one in kept[-5:]] == ["gating", "starting", "ready", "stopping", "down"]
    assert kept[-5][2] == 15
    assert kept[-1][0] == round(unit.saved["since"], 3) != unit.saved["since"]


def test_a_disk_without_words_for_its_fault_is_reported_too(unit: SteppedUnit) -> None:
    def fails(_: object) -> None:
        raise OSError("worn out")

    unit.lifecycle._save = fails
    unit.lifecycle.set_desired_state("up", False, unit.clock)
    assert unit.lifecycle.status(unit.clock)["unsaved"] == "worn out"


def test_the_status_has_what_is_known_beside_the_record(unit: SteppedUnit) -> None:
    found = unit.lifecycle.status(unit.clock)
    assert [one["state"] for one in found["ranks"]] == ["unknown", "unknown"]
    assert (found["ranks"][1]["age_s"], found["unconfirmed"], found["left"]) == (None, ["spark1", "spark2"], [])
    report(unit, 0, state="idle", detail="x")
    report(unit, 1, state="unknown")
    unit.clock += 10.04
    unit.step = 0.12345
    found = unit.lifecycle.status(unit.clock)
    assert found["ranks"][0] == {
        "rank": 0,
        "node": "spark1",
        "state": "unknown",
        "generation": 0,
        "age_s": 10.0,
        "detail": "x",
    }
    assert found["unconfirmed"] == ["spark1", "spark2"]
    assert (found["clock"], found["version"], found["name"]) == (round(unit.clock + unit.step, 3), "", "qwen")
    unit.clock -= 0.04
    found = unit.lifecycle.status(unit.clock)
    assert (found["unconfirmed"], found["left"]) == (["spark2"], ["spark2"])
    report(unit, 0, leaving=True)
    assert unit.lifecycle.status(unit.clock)["unconfirmed"] == ["spark1", "spark2"], "its machine shuts down"


def test_the_status_names_each_rank_and_the_age_of_its_report(unit: SteppedUnit) -> None:
    unit.up()
    found = unit.lifecycle.status(unit.clock + 1)
    assert (found["state"], found["generation"], found["misses"], found["unconfirmed"]) == ("ready", 1, 0, [])
    shown = [(one["node"], one["state"], one["generation"], one["age_s"]) for one in found["ranks"]]
    assert shown == [("spark1", "running", 1, 1.0), ("spark2", "running", 1, 1.0)]


def test_a_coordinator_writes_each_state_to_its_file_and_its_log(tmp_path: Path) -> None:
    """The program alone, on loopback; no rank reports to it."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("1f" * 32)
    ranks = [{"node": f"spark{number}", "address": f"127.0.0.{number}"} for number in (1, 2)]
    ends = {end: {"address": "127.0.0.1", "port": free_port()} for end in ("head", "api")}
    file = written(tmp_path, {**MINIMAL, **ends, "ranks": ranks, "secret_file": str(secret)})
    program = [sys.executable, "-B", f"{FOLDER}/serve_coordinator.py", file]
    log = tmp_path / "log"
    with log.open("wb") as output:
        coordinator = subprocess.Popen([*program, "run", "--state", f"{tmp_path}/state"], stdout=output, stderr=output)
    try:
        while "the coordinator listens at" not in log.read_text():
            assert coordinator.poll() is None, log.read_text()
            time.sleep(0.05)
        assert subprocess.run([*program, "up"]).returncode == 0, log.read_text()
        saved = json.loads((tmp_path / "state/qwen.json").read_text())
    finally:
        coordinator.kill()
        coordinator.wait()
    assert (saved["state"], saved["generation"]) == ("gating", 1)
    assert "unit qwen, generation 1: gating: " in log.read_text()
