"""`sparkrack apply` of the switch alone while the first node, which keeps the lock of the rack, is down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator import reference
from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.emulator.switch_runs import Workdir
from tests.unit.cli.runs import Ended, forked
from tests.unit.model.serving_racks import ONE_UNIT

UNREACHED = "spark1, which stores the lock of the rack, is unreachable: "
SWITCH = ("--limit", "crs812")


class Operator(Workdir):
    """An operator at a rack whose first node refuses connections."""

    def write(self) -> None:
        super().write()
        reference.refuse_at_first_node(self.folder / "rack.yaml")

    def sparkrack(self, verb: str, *words: str | Path) -> Ended:
        ended = forked(
            *("sparkrack", verb, *words, "--rack", self.folder / "rack.yaml"),
            CRS812_PASSWORD=self.emulator.password,
            XDG_STATE_HOME=str(self.folder / "state"),
        )
        assert "Traceback" not in ended.text
        return ended

    @property
    def journals(self) -> list[Path]:
        return list((self.folder / "state").rglob("*.ndjson"))


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    emulator = Crs812Process(tmp_path / "switch", settle=0.05).start()
    (tmp_path / "desk").mkdir()
    made = Operator(tmp_path / "desk", emulator)
    made.write()
    yield made
    stop_all([emulator])


def test_without_the_lock_a_run_is_refused_and_names_the_option(operator: Operator) -> None:
    ended = operator.sparkrack("apply", "-y", *SWITCH)
    assert ended.code == 1, ended.text
    assert UNREACHED in ended.stderr
    assert ended.stderr.endswith("; nothing was changed. If no other run is active: --no-lock\n")
    assert (operator.emulator.writes(), operator.journals) == (0, [])


def test_with_no_lock_it_goes_on(operator: Operator) -> None:
    ended = operator.sparkrack("apply", "-y", "--no-lock", *SWITCH)
    assert ended.code == 0, ended.text
    (line,) = [line for line in ended.stdout.splitlines() if UNREACHED in line]
    assert line.endswith("; going on without it")
    assert operator.row("qsfp56-dd-1-1")["speed"] == "100G-baseCR2"
    (journal,) = operator.journals
    assert '"result":"done"' in journal.read_text().replace(" ", "")
    writes = operator.emulator.writes()
    again = operator.sparkrack("apply", "-y", *SWITCH)
    assert (again.code, "nothing to do" in again.stdout) == (0, True), again.text
    assert operator.emulator.writes() == writes


def test_a_kept_plan_of_the_switch(operator: Operator) -> None:
    plan = operator.folder / "kept.plan"
    assert operator.sparkrack("plan", *SWITCH, "--out", plan).code == 2
    refused = operator.sparkrack("apply", plan)
    assert (refused.code, "If no other run is active: --no-lock" in refused.stderr) == (1, True), refused.text
    assert operator.emulator.writes() == 0
    assert operator.sparkrack("apply", plan, "--no-lock").code == 0
    assert operator.row("qsfp56-dd-1-1")["speed"] == "100G-baseCR2"


@pytest.mark.parametrize("words", [(), ("--only", "switch"), ("--limit", "spark2", *SWITCH)])
def test_a_run_that_selects_a_node_never_goes_on_without_it(operator: Operator, words: tuple[str, ...]) -> None:
    reads = operator.emulator.stats()["reads"]
    ended = operator.sparkrack("apply", "-y", "--no-lock", *words)
    assert ended.code == 1, ended.text
    assert "--no-lock is for a run that selects switches only, and this one selects spark" in ended.stderr
    assert "add --limit switches" in ended.stderr
    assert (operator.emulator.stats()["reads"], operator.emulator.writes()) == (reads, 0)


def test_below_units_of_which_nothing_is_known_a_run_is_refused_and_names_the_option(operator: Operator) -> None:
    rack = operator.folder / "rack.yaml"
    rack.write_text(rack.read_text() + ONE_UNIT)
    for verb, words in (("plan", ()), ("apply", ("-y", "--no-lock"))):
        ended = operator.sparkrack(verb, *words, *SWITCH)
        assert ended.code == 1, ended.text
        assert "whether a unit runs on spark8 is unknown: it does not answer; " in ended.text
        assert operator.emulator.writes() == 0
    assert operator.sparkrack("plan", *SWITCH, "--no-nodes").code == 2
    ended = operator.sparkrack("apply", "-y", "--no-lock", "--no-nodes", *SWITCH)
    assert ended.code == 0, ended.text
    assert operator.row("qsfp56-dd-1-1")["speed"] == "100G-baseCR2"
    again = operator.sparkrack("apply", "-y", *SWITCH)
    assert (again.code, "nothing to do" in again.stdout) == (0, True), again.text
