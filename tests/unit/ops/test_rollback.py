"""A change on trial, its commands run by a real shell: armed once, kept once, reverted when no run confirms it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyinfra.api.command import StringCommand

from core.ops.rollback import PendingChange
from tests.unit.ops.shells import calls, rooted, run, stand_in

TRIAL = PendingChange(name="wire", revert="echo 'old $state' > /run/state\necho \"it's back\" >> /run/state", seconds=7)
INACTIVE = '[ "$1" = is-active ] && exit 3; exit 0'


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node with a stand-in for systemd."""
    (tmp_path / "run").mkdir()
    stand_in(tmp_path, "systemctl", INACTIVE)
    stand_in(tmp_path, "systemd-run")
    return tmp_path


class Answering:
    """A host that runs what it is reported by a real shell."""

    def __init__(self, node: Path) -> None:
        self.node = node
        self.state = SimpleNamespace(print_input=False, print_output=False)

    def run_shell_command(self, command: StringCommand, **arguments: object) -> tuple[bool, None]:
        assert arguments["_sudo"] is True
        return run(command, self.node).returncode == 0, None


def keep(node: Path) -> int:
    return run(TRIAL.keep("base64 -d > /run/kept", stdin="a2VwdA=="), node).returncode


def test_the_clock_is_started(node: Path) -> None:
    assert run(TRIAL.arm(), node).returncode == 0
    script = node / "run/sparkrack/wire.revert"
    assert script.read_text().startswith(TRIAL.revert)
    assert f"{script.stat().st_mode & 0o777:o}" == "600"
    (started,) = [call for call in calls(node) if call.startswith("systemd-run")]
    assert "--unit=sparkrack-revert-wire" in started
    assert "--on-active=7s" in started
    assert "--timer-property=AccuracySec=100ms" in started
    assert started.endswith(f"/bin/sh {script}")


def test_the_revert_script_does_what_it_says_and_goes(node: Path) -> None:
    run(TRIAL.arm(), node)
    script = node / "run/sparkrack/wire.revert"
    script.write_text(rooted(script.read_text(), node))
    assert run(f"/bin/sh {script}", node).returncode == 0
    assert (node / "run/state").read_text() == "old $state\nit's back\n"
    assert not script.exists()


def test_a_second_trial_of_that_name_does_not_begin(node: Path) -> None:
    run(TRIAL.arm(), node)
    other = PendingChange(name="wire", revert="true", seconds=7)
    done = run(other.arm(), node)
    assert done.returncode == 1
    assert "run again then" in done.stderr
    assert (node / "run/sparkrack/wire.revert").read_text().startswith(TRIAL.revert)


def test_no_clock_no_trial(node: Path) -> None:
    stand_in(node, "systemd-run", "exit 1")
    assert run(TRIAL.arm(), node).returncode == 1
    assert not (node / "run/sparkrack/wire.revert").exists()


def test_keeping_stops_the_clock_first(node: Path) -> None:
    run(TRIAL.arm(), node)
    before = len(calls(node))
    assert keep(node) == 0
    assert (node / "run/kept").read_text() == "kept"
    assert not (node / "run/sparkrack/wire.revert").exists()
    assert calls(node)[before] == "systemctl stop sparkrack-revert-wire.timer"


def test_what_was_taken_back_is_not_kept(node: Path) -> None:
    assert keep(node) == 1
    assert not (node / "run/kept").exists()


def test_what_is_being_taken_back_is_not_kept(node: Path) -> None:
    run(TRIAL.arm(), node)
    stand_in(node, "systemctl")  # is-active: yes
    done = run(TRIAL.keep("base64 -d > /run/kept", stdin="a2VwdA=="), node)
    assert done.returncode == 1
    assert "has been reverted" in done.stderr
    assert not (node / "run/kept").exists()
    assert (node / "run/sparkrack/wire.revert").exists()


def test_when_keeping_fails_it_is_said(node: Path) -> None:
    run(TRIAL.arm(), node)
    assert run(TRIAL.keep("false; touch /run/kept", stdin=""), node).returncode != 0
    assert not (node / "run/kept").exists()


def test_taking_back_now(node: Path) -> None:
    run(TRIAL.arm(), node)
    script = node / "run/sparkrack/wire.revert"
    script.write_text(rooted(script.read_text(), node))
    assert TRIAL.revert_now(Answering(node))  # type: ignore[arg-type]
    assert (node / "run/state").read_text() == "old $state\nit's back\n"
    assert "systemctl stop sparkrack-revert-wire.timer" in calls(node)


def test_taking_back_what_is_back_already(node: Path) -> None:
    assert TRIAL.revert_now(Answering(node))  # type: ignore[arg-type]
    assert not (node / "run/state").exists()


def test_taking_back_that_fails_is_reported(node: Path) -> None:
    folder = node / "run/sparkrack"
    folder.mkdir()
    (folder / "wire.revert").write_text("exit 4\n")
    assert not TRIAL.revert_now(Answering(node))  # type: ignore[arg-type]


class LoggingHost(Answering):
    """A host that keeps what it logs. `lost`: the connection to it is."""

    def __init__(self, node: Path, *, lost: bool = False) -> None:
        super().__init__(node)
        self.lost = lost
        self.said: list[str] = []

    def run_shell_command(self, command: StringCommand, **arguments: object) -> tuple[bool, None]:
        if self.lost:
            raise EOFError
        return super().run_shell_command(command, **arguments)

    def log(self, text: str, **_: object) -> None:
        self.said.append(text)

    log_styled = log


@pytest.mark.parametrize(
    ("broken", "lost", "said"),
    [
        (False, False, "the old network is back"),
        (True, False, "the old network could not be brought back from here; the node does it itself within 7 s"),
        (False, True, "the old network could not be brought back from here; the node does it itself within 7 s"),
    ],
)
def test_whether_a_change_was_taken_back_is_in_the_log(node: Path, broken: bool, lost: bool, said: str) -> None:
    run(TRIAL.arm(), node)
    script = node / "run/sparkrack/wire.revert"
    script.write_text("exit 1\n" if broken else rooted(script.read_text(), node))
    host = LoggingHost(node, lost=lost)
    TRIAL.take_back(host, "the old network")  # type: ignore[arg-type]
    assert host.said == [said]


@pytest.mark.parametrize(("done", "reverted"), [(0, False), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("executing", [True, False])
def test_a_change_of_which_a_step_fails_is_reverted_once_the_timer_is_armed(
    node: Path, done: int, reverted: bool, executing: bool
) -> None:
    """`done`: how many of the three commands (arm, change, keep) succeed before pyinfra ends the operation."""
    host = LoggingHost(node)
    host.state.is_executing = executing
    commands = TRIAL.attempt(host, [StringCommand("true"), TRIAL.keep("true", stdin="")], "the old network")  # type: ignore[arg-type]
    run(TRIAL.arm(), node)
    for _ in range(done + 1):
        next(commands, None)
    commands.close()
    assert (host.said != []) is (reverted and executing)
