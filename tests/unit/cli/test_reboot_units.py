"""`sparkrack reboot` and the units of inference engines, with nodes that are shells of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.verify.outcomes import Outcome
from serving import verify
from sparkrack.cli.main import sparkrack
from sparkrack.rebuild import restart
from tests.unit.cli.serve_rack import ServeRack, answer
from tests.unit.model.serving_racks import unit

CAT = """#!/bin/sh
case $1 in /proc/sys/kernel/random/boot_id) exec /bin/cat "$NODE/boot";; *) exec /bin/cat "$@";; esac
"""
FIND = """#!/bin/sh
for unit in $(/bin/cat "$NODES/up"); do
echo /sys/fs/cgroup/sparkrack.slice/sparkrack-$unit.slice/docker-aa.scope
echo /sys/fs/cgroup/system.slice/sparkrack-serve-$unit.service
done
"""
SYSTEMCTL = """#!/bin/sh
[ -z "$(/bin/cat "$NODES/up")" ] || echo "a unit was up" >> "$NODES/restarted"
echo "${NODE##*/}" >> "$NODES/restarted"
wc -l < "$NODES/restarted" > "$NODE/boot"
rm -rf "$NODE/run/sparkrack"
"""
COORDINATOR_THAT_STOPS = """\
case $1 in down) : > "$NODES/up" ;; up) cp "$NODES/restarted" "$NODES/before-start" ;; esac
"""


class Rack(ServeRack):
    """The three nodes of the rack; n0 and n1 have unit qwen."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        for name, text in {"bin/cat": CAT, "bin/find": FIND, "bin/systemctl": SYSTEMCTL}.items():
            self.program(name, text)
        for name in ("n0", "n1", "n2"):
            (folder / name / "boot").write_text("first\n")
            coordinator = folder / f"{name}/usr/local/lib/sparkrack/serve/serve_coordinator.py"
            coordinator.write_text(coordinator.read_text().replace("shift\n", f"shift\n{COORDINATOR_THAT_STOPS}", 1))
        self.up("qwen")
        self.outcomes: list[Outcome] = []
        monkeypatch.setattr(restart, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(restart, "run_checks", lambda *_, **__: [self.proof("test_swap", "memory"), *self.outcomes])

    def proof(self, check: str, role: str = "serving", *, passed: bool = True) -> Outcome:
        return Outcome("n0", role, f"roles/{role}/verify.py::{check}[node=n0]", passed=passed, why="")

    def up(self, *names: str) -> None:
        (self.folder / "up").write_text(" ".join(names))

    def restart(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["reboot", "-y", "--rack", str(self.file), *words])

    def restarted(self, file: str = "restarted") -> list[str]:
        noted = self.folder / file
        return noted.read_text().splitlines() if noted.exists() else []


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    return Rack(tmp_path, monkeypatch)


@pytest.mark.parametrize("words", [(), ("--containers",), ("--limit", "n1")])
def test_a_unit_that_is_up_is_not_ended_without_a_confirmation(rack: Rack, words: tuple[str, ...]) -> None:
    done = rack.restart(*words)
    assert done.exit_code == 1
    assert "unit qwen (n0, n1) runs on n" in done.output
    assert "pass --stop-units, which stops it on all its nodes first, or run `sparkrack serve stop qwen`" in done.output
    assert "nothing was restarted" in done.output
    assert (rack.restarted(), rack.asked()) == ([], [])


def test_it_is_stopped_before_the_first_restart_and_started_after_the_last(rack: Rack) -> None:
    rack.answers(
        answer("ready"), answer("down", desired_state="down"), answer("down", desired_state="down"), answer("ready")
    )
    done = rack.restart("--stop-units")
    assert done.exit_code == 0, done.output
    assert rack.restarted() == ["n0", "n1", "n2"]
    assert rack.restarted("before-start") == ["n0", "n1", "n2"]
    assert rack.asked() == ["qwen down", "qwen up"]
    assert "unit qwen (n0, n1) is stopped on all its nodes for the restart" in done.output


def test_a_unit_that_is_to_be_down_stays_down(rack: Rack) -> None:
    rack.declare({"qwen": unit(state="down")})
    rack.answers(answer("ready"), answer("down", desired_state="down"))
    done = rack.restart("--stop-units")
    assert done.exit_code == 0, done.output
    assert "unit qwen stays down, as rack.yaml declares it" in done.output
    assert rack.asked() == ["qwen down"]


def test_nothing_is_restarted_when_a_rank_is_not_confirmed_as_stopped(rack: Rack) -> None:
    rack.fail("refusal", "it is being changed")
    rack.answers(answer("ready"))
    done = rack.restart("--stop-units")
    assert done.exit_code == 1
    assert rack.restarted() == []


def test_it_stays_down_after_a_node_that_is_not_as_declared(rack: Rack) -> None:
    rack.answers(answer("ready"), answer("down", desired_state="down"))
    rack.outcomes = [rack.proof("test_docker", "docker", passed=False)]
    done = rack.restart("--stop-units")
    assert done.exit_code == 1
    assert rack.restarted() == ["n0"]
    assert "unit qwen is down; `sparkrack serve start qwen` starts it" in done.output
    assert rack.asked() == ["qwen down"]


def test_exit_1_when_no_completion_proves_it(rack: Rack) -> None:
    rack.answers(
        answer("ready"),
        answer("down", desired_state="down"),
        answer("down", desired_state="down"),
        answer("gating", "held"),
    )
    done = rack.restart("--stop-units")
    assert done.exit_code == 1
    assert "3 of 3 nodes restarted and proven" in done.output


def test_whether_units_are_up_is_not_judged_after_a_restart(rack: Rack) -> None:
    rack.up()
    rack.outcomes = [rack.proof(name, passed=False) for name in restart.UNIT_CHECKS]
    assert rack.restart().exit_code == 0
    rack.outcomes = [rack.proof("test_the_files_are_those_of_the_rack", passed=False)]
    assert rack.restart("--limit", "n2").exit_code == 1


def test_these_checks_exist() -> None:
    assert all(hasattr(verify, name) for name in restart.UNIT_CHECKS)


def test_a_unit_that_rack_yaml_does_not_declare_is_not_stopped(rack: Rack) -> None:
    rack.up("old")
    done = rack.restart("--stop-units")
    assert done.exit_code == 1
    assert "unit old, which " in done.output
    assert rack.restarted() == []
