"""Progress: on a terminal while a node is still silent, a bounded number of lines in a log, nothing with --json."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.util.progress import WITHOUT_PROGRESS
from core.verify.checked_roles import verify_files
from core.verify.runner import run_checks
from sparkrack.engine.subcommands import WITHIN
from sparkrack.status.collect_answers import collect_answers
from sparkrack.terminal.progress import LOG_SECONDS, ProgressDisplay
from sparkrack.terminal.startup_notice import FIRST_SECONDS
from sparkrack.topology.collect import collect_observations
from tests.unit.cli.cli_fixtures import ESCAPE, PLAN, SPARKRACK, SWAPS, closed_port, node, settings
from tests.unit.cli.terminal import ERASED, Screen, on_terminal
from tests.unit.engine.ssh_node import SshNode, rack_file
from tests.unit.model.racks import loaded

SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"


class Held(Screen):
    """A `sparkrack` whose node answers only after `release`."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        self.released = threading.Event()
        self.over = False
        speak = node(**SWAPS)

        def late(command: str) -> tuple[int, str, str] | None:
            self.released.wait(60)
            return None if self.over else speak(command)

        self.node = SshNode(late)
        rack = rack_file(folder, self.node)
        super().__init__([SPARKRACK, *words], settings(folder, RACK=str(rack), **env))

    def end(self) -> tuple[int, str, str]:
        """The exit code, the standard output, and all that the terminal got."""
        self.released.set()
        code = self.finish()
        return code, self.out, self.shown


@contextmanager
def held(folder: Path, *words: str, **env: str) -> Iterator[Held]:
    """Run such a command and end it."""
    made = Held(folder, *words, **env)
    try:
        yield made
    finally:
        made.over = True
        made.released.set()
        made.close()
        made.node.close()


@pytest.mark.parametrize("verb", ["plan", "drift"])
def test_a_terminal_shows_host_role_and_seconds_while_a_node_is_silent(tmp_path: Path, verb: str) -> None:
    with held(tmp_path, verb, *PLAN[1:]) as run:
        run.until(r"plan, \d+ s: 0 of 1 hosts done")
        run.until(r"spark1  preflight: reads the facts \(1 of \d+\)")
        before = set(re.findall(r"plan, (\d+) s", run.shown))
        run.until(rf"plan, (?!(?:{'|'.join(before)}) s)\d+ s")
        code, out, seen = run.end()
    assert code == 2
    assert "release zram0" in out
    assert "plan," not in out
    # The picture is removed, and the cursor is there.
    assert seen.rindex(ERASED) > seen.rindex("plan,")
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


def test_a_dumb_terminal_has_one_line_that_is_written_over(tmp_path: Path) -> None:
    with held(tmp_path, *PLAN, NO_COLOR="1") as run:
        run.until(r"\r\d+ s: plan: spark1 preflight: reads the facts \(1 of \d+\)")
        code, _, seen = run.end()
    assert code == 2
    assert ESCAPE not in seen
    assert "\n" not in seen
    assert re.search(r"\r +\r$", seen)


@pytest.mark.parametrize("words", [(*PLAN, "--json"), (*PLAN, "--quiet"), ("drift", *PLAN[1:], "--quiet")])
def test_json_and_quiet_show_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    with held(tmp_path, *words, **{WITHIN: ""}) as run:
        assert run.node.begun.wait(60)
        code, out, seen = run.end()
    assert (code, seen) == (2, "")
    assert out


def test_a_quiet_command_that_another_one_runs_shows_its_progress(tmp_path: Path) -> None:
    """`up` has its plan and its verification in one line: a person would wait for it in front of a still screen."""
    with held(tmp_path, *PLAN, "--quiet", **{WITHIN: "rebuild"}) as run:
        run.until(r"spark1  preflight: reads the facts")
        code, out, _ = run.end()
    assert code == 2
    assert len(out.splitlines()) == 1


def test_ctrl_c_leaves_the_terminal_clean(tmp_path: Path) -> None:
    with held(tmp_path, *PLAN) as run:
        run.until(r"spark1  preflight: reads the facts")
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 1
        seen = run.shown
    assert seen.endswith("ended\r\n")
    assert seen.rindex(ERASED) > seen.rindex("reads the facts")
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_few_lines_and_none_twice(capsys: pytest.CaptureFixture[str]) -> None:
    clock = _Clock()
    display = ProgressDisplay(clock=clock)
    display.phase("plan", ["spark1", "spark2"])
    for second in range(60):
        clock.now = float(second)
        # For 30 s something happens ten times a second, and then nothing any more.
        for _ in range(10):
            display.step("spark1", "memory", min(second, 30), 40)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "5 s: plan: spark1 memory (5 of 40), spark2 waits"
    assert len(lines) == len({line.partition(": ")[2] for line in lines})
    assert 3 <= len(lines) <= 30 / LOG_SECONDS + 1


def test_what_is_fast_leaves_no_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    clock = _Clock()
    display = ProgressDisplay(clock=clock)
    with display.shown():
        clock.now = LOG_SECONDS - 1
        display.phase("connect", ["spark1"])
        display.finish("spark1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_operation_keeps_its_seconds_in_the_picture(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    clock = _Clock()
    display = ProgressDisplay(clock=clock)
    display.phase("[13/21] docker: Run docker with the rack's settings, now and after a reboot", ["spark1"])
    first = display._render_picture(52.0).plain.splitlines()[0]
    assert first.startswith("[13/21] docker: Run docker with")
    assert first.endswith("\u2026, 52 s: 0 of 1 hosts done")
    assert len(first) <= columns


class _Recorder:
    def __init__(self) -> None:
        self.phases: list[tuple[str, list[str]]] = []
        self.steps: list[tuple[str, str, int, int]] = []
        self.finished: list[str] = []
        self.results: list[str] = []

    def phase(self, title: str, hosts: object = ()) -> None:
        self.phases.append((title, list(hosts)))  # type: ignore[call-overload]

    def step(self, host: str, activity: str, number: int = 0, total: int = 0) -> None:
        self.steps.append((host, activity, number, total))

    def finish(self, host: str, result: str = "done") -> None:
        self.finished.append(host)
        self.results.append(result)


def test_verify_reports_each_check_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.verify.runner.PROGRESS_SECONDS", 0.001)
    rack = loaded(rack_file(tmp_path, None, closed_port()).read_text())
    recorder = _Recorder()
    outcomes = run_checks(rack, verify_files(["memory"]), ["spark1"], None, progress=recorder)
    assert outcomes
    assert recorder.phases == [("verify", ["spark1"])]
    total = len({outcome.check for outcome in outcomes})
    assert recorder.steps == [("spark1", "memory", number, total) for number in range(1, total + 1)]
    assert recorder.finished == ["spark1"]


def test_status_and_topology_report_each_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRS812_PASSWORD", "secret")
    rack = loaded(rack_file(tmp_path, None, closed_port()).read_text())
    status, topology = _Recorder(), _Recorder()
    collect_answers(rack, ["spark1", "crs812"], status)
    assert status.phases == [("read the state", ["spark1", "crs812"])]
    assert sorted(status.finished) == ["crs812", "spark1"]
    assert status.results == ["no answer", "no answer"]
    collect_observations(rack, ["spark1"], progress=topology)
    assert topology.phases == [("read the links of the nodes", ["spark1"]), ("read the switch", ["crs812"])]
    assert (topology.finished, topology.results) == (["spark1"], ["no answer"])


def test_bootstrap_shows_the_node_that_is_silent(tmp_path: Path) -> None:
    silent = SshNode(node(), greets=False)
    rack = rack_file(tmp_path, silent, known=False)
    words = ["bootstrap", "nodes", "spark1", "--dry", "--timeout", "60", "--rack", str(rack)]
    with on_terminal(words, settings(tmp_path)) as screen:
        screen.until(r"read the host keys, \d+ s: 0 of 1 hosts done")
        screen.until_later("read the host keys")
    silent.close()


def test_a_line_of_output_is_printed_apart_from_the_picture(tmp_path: Path) -> None:
    rack = rack_file(tmp_path, None, closed_port())
    words = ["bootstrap", "nodes", "spark1", "--dry", "--timeout", "0", "--rack", str(rack)]
    with on_terminal(words, settings(tmp_path)) as screen:
        assert screen.finish() == 1
    assert "spark1: stopped: " in screen.out
    assert screen.out.splitlines()[-1] == "0 of 1 nodes read"
    assert f"{ERASED}spark1: [" in screen.shown, "the picture is removed before the line"
    assert screen.shown.rindex(ERASED) > screen.shown.rindex("read the nodes")


SLOW = """\
import sys, time
from importlib.abc import MetaPathFinder
from pathlib import Path


class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        while name == {module!r} and not Path({released!r}).exists():
            time.sleep(0.05)


sys.meta_path.insert(0, Slow())
sys.argv = ["sparkrack", *{words!r}]
from sparkrack.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("core.model.loader", ["check"]),
        ("sparkrack.cli.check", ["check"]),
        ("sparkrack.engine.gevent_patch", ["plan", "--help"]),
        ("sparkrack.engine.evaluated", ["plan", "--limit", "nothing"]),
    ],
)
def test_a_program_that_loads_slowly_says_so(tmp_path: Path, module: str, words: list[str]) -> None:
    released, rack = tmp_path / "released", rack_file(tmp_path, None, closed_port())
    program = SLOW.format(module=module, released=str(released), words=words)
    with on_terminal(["-c", program], settings(tmp_path, RACK=str(rack)), sys.executable) as screen:
        screen.until(r"\d+ s: load the program")
        released.touch()
        screen.finish()
    assert re.search(r"load the program\r +\r", screen.shown), "the line is removed"


def test_a_program_that_loads_slowly_prints_nothing_with_json(tmp_path: Path) -> None:
    released, rack = tmp_path / "released", rack_file(tmp_path, None, closed_port())
    program = SLOW.format(module="sparkrack.cli.check", released=str(released), words=["check", "--json"])
    with on_terminal(["-c", program], settings(tmp_path, RACK=str(rack)), sys.executable) as screen:
        threading.Timer(FIRST_SECONDS + 1, released.touch).start()
        screen.finish()
    assert screen.shown == ""


def test_a_process_without_progress(tmp_path: Path) -> None:
    """As a command within `rebuild --json`."""
    rack = rack_file(tmp_path, None, closed_port())
    words = ["bootstrap", "nodes", "spark1", "--dry", "--timeout", "0", "--rack", str(rack)]
    with on_terminal(words, settings(tmp_path, **{WITHOUT_PROGRESS: "1"})) as screen:
        screen.finish()
    assert "read the host keys" not in screen.shown
