"""Metrics of drift and drills from the machine of an operator, on the server of the watch: ssh is a stand-in."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from core.model import Rack, load
from core.ssh.node_shells import ScriptError
from core.util.event import EventKind
from core.util.paths import state_folder
from sparkrack.cli.main import sparkrack
from sparkrack.engine.plan import Plan
from sparkrack.status.drills import DrillLevel, DrillResult, store_drill
from sparkrack.watch import delivery
from sparkrack.watch.delivery import MetricsFile, deliver
from tests.unit.autopsy import test_drill
from tests.unit.autopsy.nodes import Nodes
from tests.unit.drift.plans import machine, plan, unreachable
from tests.unit.model.racks import SWITCH, changed

IN_SYNC = plan(machine("spark1"), machine("spark2"))
DRIFTED = plan(machine("spark1", ("fabric", EventKind.CHANGE, "mtu 1500 -> 9000")), machine("spark2"))
DARK = plan(machine("spark1"), unreachable("spark2"))
WARNING = "warning: the metrics were not delivered to the server of the watch: spark2: "
NOW = datetime.now(UTC)


@dataclass
class Operator:
    """A machine outside of the rack. `folder`: what the exporter of the server, spark2, reads."""

    file: Path
    nodes: Nodes
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def declare(self, watch: str) -> Rack:
        """Write the rack file with this section."""
        self.file.write_text(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{}}\n{watch}")))
        return load(self.file)

    def drift(self, whole: Plan, *words: str) -> Result:
        """Run the command on what a session has found."""

        @contextmanager
        def evaluated(*_: object) -> Iterator[Any]:
            yield type("Seen", (), {"plan": whole})

        stub = ModuleType("sparkrack.engine.evaluated")
        stub.__dict__.update(evaluated=evaluated, selected=lambda *_: (load(self.file), None))
        self.monkeypatch.setitem(sys.modules, "sparkrack.engine.evaluated", stub)
        ended = CliRunner().invoke(sparkrack, ["drift", "--rack", str(self.file), *words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    def drilled(self, node: str = "spark1") -> DrillResult:
        """Keep a drill of this node on this machine."""
        made = NOW.replace(microsecond=0) - timedelta(days=3)
        drill = DrillResult(run="x", rack="two", node=node, level=DrillLevel.MARK, made=made, passed=True, reason="r")
        store_drill(state_folder("two"), drill)
        return drill

    @property
    def delivered(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    (tmp_path / "nodes").mkdir()
    nodes = Nodes(tmp_path / "nodes", ("spark1", "spark2"))
    for name, value in {**nodes.environment, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "node-exporter"
    folder.mkdir()
    monkeypatch.setattr(delivery, "FOLDER", str(folder))
    found = Operator(tmp_path / "rack.yaml", nodes, folder, monkeypatch)
    found.declare("watch: {server: spark2}")
    return found


def series(path: Path) -> dict[str, dict[str, float]]:
    """Each series of a file by its name, and in it the values by their host."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert sample.labels["ran_on"] == socket.gethostname()
            found.setdefault(sample.name, {})[sample.labels.get("host", "")] = sample.value
    return found


@pytest.mark.parametrize(("whole", "code"), [(IN_SYNC, 0), (DRIFTED, 2)])
@pytest.mark.parametrize("words", [[], ["--json"], ["--quiet"]])
def test_a_run_of_the_whole_rack_is_delivered(operator: Operator, whole: Plan, code: int, words: list[str]) -> None:
    ended = operator.drift(whole, *words)
    assert (ended.exit_code, ended.stderr) == (code, "")
    path = operator.folder / "sparkrack.prom"
    assert operator.delivered == {path.name}
    assert path.stat().st_mode & 0o777 == 0o644
    assert series(path)["sparkrack_unknown"] == {"spark1": 0, "spark2": 0}


def test_drills_of_this_machine_come_along(operator: Operator) -> None:
    """The delivery of their own may have failed."""
    drill = operator.drilled()
    operator.drift(IN_SYNC)
    path = operator.folder / "sparkrack-drill-spark1-mark.prom"
    assert operator.delivered == {"sparkrack.prom", path.name}
    assert series(path) == {
        "sparkrack_drill_timestamp_seconds": {"spark1": drill.made.timestamp()},
        "sparkrack_drill_passed": {"spark1": 1},
    }
    assert path.stat().st_mtime == drill.made.timestamp()


@pytest.mark.parametrize(
    "words", [["--limit", "spark1"], ["--exclude", "spark1"], ["--only", "time"], ["--no-history"]]
)
def test_a_part_of_the_rack_is_not_delivered(operator: Operator, words: list[str]) -> None:
    assert operator.drift(DRIFTED, *words).exit_code == 2
    assert operator.delivered == set()


@pytest.mark.parametrize("watch", ["", "watch: {server: 10.77.0.50}", "watch: {server: spark2}\nleave: [watch]"])
def test_without_a_server_in_the_rack_nothing_is_delivered(operator: Operator, watch: str, tmp_path: Path) -> None:
    """A local file has the drills then."""
    operator.declare(watch)
    operator.drilled()
    ended = operator.drift(DRIFTED, "--prom", str(tmp_path / "local.prom"))
    assert (ended.exit_code, ended.stderr) == (2, "")
    assert operator.delivered == set()
    assert "sparkrack_drill_passed" in series(tmp_path / "local.prom")


def test_a_local_file_has_no_series_that_is_delivered(operator: Operator, tmp_path: Path) -> None:
    """It may be in the same folder, and an exporter refuses a series that it has twice."""
    operator.drilled()
    operator.drift(DRIFTED, "--prom", str(tmp_path / "local.prom"))
    assert "sparkrack_drill_passed" not in series(tmp_path / "local.prom")


@pytest.mark.parametrize(("whole", "code"), [(IN_SYNC, 0), (DRIFTED, 2)])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_server_that_is_not_reached_changes_nothing_else(
    operator: Operator, whole: Plan, code: int, words: list[str]
) -> None:
    wanted = operator.drift(whole, *words, "--no-history")
    operator.nodes.die("spark2")
    ended = operator.drift(whole, *words)
    assert ended.exit_code == wanted.exit_code == code
    assert ended.stderr.splitlines() == [f"{WARNING}ssh: connect to host spark2 port 22: No route to host"]
    assert not words or json.loads(ended.stdout)["hosts"] == json.loads(wanted.stdout)["hosts"]
    assert words or ended.stdout == wanted.stdout


def test_a_server_that_did_not_answer_the_run_is_not_asked_again(operator: Operator) -> None:
    ended = operator.drift(DARK)
    assert ended.exit_code == 1
    assert ended.stderr.splitlines() == [f"{WARNING}no route to host"]
    assert operator.delivered == set()


def test_a_server_that_the_role_has_not_reached_yet(operator: Operator) -> None:
    operator.folder.rmdir()
    ended = operator.drift(IN_SYNC)
    assert ended.exit_code == 0
    assert ended.stderr == f"{WARNING}{operator.folder} is not there; sparkrack apply --only watch makes it\n"


def made(text: str, age: float = 0) -> MetricsFile:
    return MetricsFile("x.prom", text, NOW - timedelta(seconds=age))


def test_the_newest_stays(operator: Operator) -> None:
    """The last delivery stays. A file of the future is that of a wrong clock."""
    rack, path = load(operator.file), operator.folder / "x.prom"
    for age, text, wanted in ((60, "first\n", "first\n"), (90, "older\n", "first\n"), (30, "newer\n", "newer\n")):
        deliver(rack, [made(text, age)])
        assert path.read_text() == wanted
    os.utime(path, (time.time() + 90_000,) * 2)
    deliver(rack, [made("now\n")])
    assert path.read_text() == "now\n"
    assert operator.delivered == {"x.prom"}


def test_a_link_in_the_folder_is_replaced_and_not_followed(operator: Operator, tmp_path: Path) -> None:
    """Others may write there: the user of a timer does."""
    (tmp_path / "secret").write_text("secret")
    os.utime(tmp_path / "secret", (0, 0))
    (operator.folder / "x.prom").symlink_to(tmp_path / "secret")
    deliver(load(operator.file), [made("mine\n")])
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (operator.folder / "x.prom").is_symlink()
    assert (operator.folder / "x.prom").read_text() == "mine\n"


@pytest.mark.parametrize("tool", ["base64", "gzip", "mv"])
def test_a_delivery_that_fails_leaves_the_file_as_it_was(operator: Operator, tool: str) -> None:
    rack = load(operator.file)
    deliver(rack, [made("first\n", 60)])
    program = operator.nodes.folder / "bin" / tool
    program.write_text(f"#!/bin/sh\necho '{tool}: broken' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(ScriptError, match=r"^spark2: "):
        deliver(rack, [made("second\n")])
    assert operator.delivered == {"x.prom"}
    assert (operator.folder / "x.prom").read_text() == "first\n"


def test_a_large_rack_fits(operator: Operator) -> None:
    """The text of 64 nodes goes as one argument, which may have 128 KiB."""
    whole = plan(*(machine(f"spark{number}") for number in range(64)))
    assert operator.drift(whole).stderr == ""
    assert len(series(operator.folder / "sparkrack.prom")["sparkrack_unknown"]) == 64


@pytest.fixture
def drilling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Result]:
    """Drill spark2 from this machine, with the server spark1 that has this folder."""
    rack = test_drill.Rack(tmp_path, monkeypatch)
    rack.file.write_text(rack.file.read_text().replace("blackbox: {}", "blackbox: {}\nwatch: {server: spark1}"))

    def run(folder: Path) -> Result:
        monkeypatch.setattr(delivery, "FOLDER", str(folder))
        return rack.run("mark", confirm=None)

    return run


def test_a_drill_is_delivered(drilling: Callable[[Path], Result], tmp_path: Path) -> None:
    ended = drilling(tmp_path)
    assert ended.exit_code == 0, ended.output
    found = series(tmp_path / "sparkrack-drill-spark2-mark.prom")
    assert found["sparkrack_drill_passed"] == {"spark2": 1}
    assert abs(found["sparkrack_drill_timestamp_seconds"]["spark2"] - time.time()) < 90


def test_a_drill_that_cannot_be_delivered_has_its_result(drilling: Callable[[Path], Result], tmp_path: Path) -> None:
    ended = drilling(tmp_path / "none")
    assert ended.exit_code == 0, ended.output
    assert "spark2: drill mark passed" in ended.stdout
    assert f"delivered to the server of the watch: spark1: {tmp_path}/none is not there" in ended.stderr
    assert list((tmp_path / "state/sparkrack/two/drills").iterdir())
