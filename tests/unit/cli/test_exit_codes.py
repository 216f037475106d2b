"""How the real `sparkrack` command ends, over real ssh connections to loopback: code, stdout, stderr, no traceback."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.run.plan import Plan
from tests.unit.fleet.racks import CASES, SWITCH, loaded
from tests.unit.ops.fakenode import Answers
from tests.unit.roles.cases import NOW
from tests.unit.run.fakerack import connected, usual
from tests.unit.run.sshnode import ADDRESS, Speak, SshNode, answering, rack_file

from .runs import BIN, REPOSITORY, Ended

PLAN = ("plan", "--limit", "spark1", "--only", "memory")
ESCAPE = "\x1b["


def node(**differs: Any) -> Speak:
    """A sound node, but for some answers; its clock is right."""
    told = dict(usual("memory")) | {key.replace("_", "-"): value for key, value in differs.items()}

    def speak(command: str) -> tuple[int, str, str] | None:
        clock = told["preflight-now"].replace(str(int(NOW)), str(int(time.time())))
        return answering(told | {"preflight-now": clock})(command)

    return speak


def hangs(_: str) -> None:
    """A command that never ends."""


def saying(code: int, complaint: str) -> Speak:
    return lambda _: (code, "", f"{complaint}\n")


SWAPS = {"zram_devices": "zram0 4096\n"}
SECRET = "CRS812_PASSWORD"
KNOWN = "not in the rack; there are spark1, spark2, crs812"
SPARKRACK = str(BIN / "sparkrack")


@dataclass(frozen=True)
class Scene:
    """One call. `speak`: what node there is, None for nobody; `fed`: where the shell takes its input from."""

    code: int
    out: str = ""
    err: str = ""
    words: tuple[str, ...] = PLAN
    speak: Speak | None = None
    known: bool = True
    greets: bool = True
    fed: str = "</dev/null"
    env: Mapping[str, str] = field(default_factory=dict)


SCENES: Mapping[str, Scene] = {
    # First what takes longest: paramiko waits 15 s for a server's first word.
    "connection that says nothing": Scene(1, "spark1: unreachable: ", speak=node(), greets=False),
    "in sync": Scene(0, "1 host, 0 changes, 0 unknown\n", speak=node()),
    "changes, as JSON": Scene(2, '"changes"', words=(*PLAN, "--json"), speak=node(**SWAPS)),
    "changes, and no input": Scene(2, "~ release zram0", speak=node(**SWAPS), fed="<&-"),
    "a question that fails": Scene(
        1, "zram-devices: reading it ends with exit 3", speak=node(zram_devices={"exit": 3})
    ),
    "permission denied": Scene(1, "state of the node: Permission denied", speak=saying(1, "Permission denied")),
    "dead host, as JSON": Scene(1, '"unreachable"', words=(*PLAN, "--json")),
    "dead switch": Scene(1, "crs812: unreachable: ", words=("plan", "--limit", "crs812"), env={SECRET: "canary"}),
    "unknown host key": Scene(1, "spark1: unreachable: ", speak=node(), known=False),
    "no match": Scene(1, err=f"Error: --limit spark9: {KNOWN}\n", words=("plan", "--limit", "spark9")),
}
"""What is about processes and connections; what is not is below."""


def settings(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a call: its own folder for what it keeps or leaves."""
    (folder / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "RACK")}
    own = {"TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
    return {**kept, **own, "TERM": "xterm", "COLUMNS": "200", **more}


def closed_port() -> int:
    with socket.create_server((ADDRESS, 0)) as taken:
        return int(taken.getsockname()[1])


def play(scene: Scene, folder: Path) -> tuple[Ended, list[str]]:
    """How the call ends, and what its node was told beside the probe."""
    there = SshNode(scene.speak, greets=scene.greets) if scene.speak else None
    try:
        rack = rack_file(folder, there, None if there else closed_port(), known=scene.known)
        shell = ["sh", "-c", f'exec "$@" {scene.fed}', "sh", SPARKRACK, *scene.words]
        done = subprocess.run(
            shell, env=settings(folder, RACK=str(rack), **scene.env), capture_output=True, text=True, timeout=120
        )
        return Ended(done.returncode, done.stdout, done.stderr), there.commands if there else []
    finally:
        if there:
            there.close()


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[tuple[Ended, list[str]]]]]:
    """All of them, some at a time."""
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(play, scene, tmp_path_factory.mktemp("scene")) for name, scene in SCENES.items()}


@pytest.mark.parametrize("name", [*list(SCENES)[1:], next(iter(SCENES))])
def test_it_ends(name: str, plays: Mapping[str, Future[tuple[Ended, list[str]]]]) -> None:
    scene = SCENES[name]
    ended, told = plays[name].result()
    judge(scene, ended)
    assert told == [], "a plan changes nothing"


def judge(scene: Scene, ended: Ended) -> None:
    assert ended.code == scene.code, ended.text
    assert "Traceback" not in ended.text, ended.text
    assert "canary" not in ended.text
    assert ESCAPE not in ended.text, "nobody watches"
    if scene.err:
        assert scene.err in ended.stderr
        assert ended.stdout == ""
    else:
        assert scene.out in ended.stdout
        assert ended.stderr == ""
    if "--json" in scene.words and not scene.err:
        assert json.loads(ended.stdout)["schema"] == "sparkrack.plan/1"
        assert Plan.model_validate_json(ended.stdout).code == scene.code


INSIDE: Mapping[str, tuple[Scene, dict[str, Any]]] = {
    "quiet": (Scene(0, "1 host, 0 changes, 0 unknown\n", words=(*PLAN, "--quiet")), {}),
    "quiet, changes": (Scene(2, "1 host, 1 change, 0 unknown\n", words=(*PLAN, "--quiet")), SWAPS),
    "quiet, unknown": (Scene(1, "spark1: unknown: ", words=(*PLAN, "--quiet")), {"zram_devices": {"exit": 3}}),
    "unknown, as JSON": (Scene(1, '"unknown"', words=(*PLAN, "--json")), {"zram_devices": {"exit": 3}}),
    "refused, as JSON": (Scene(1, '"refused"', words=(*PLAN, "--json")), {"preflight_now": "clock 0 1700000000.0\n"}),
    "garbage": (Scene(1, "unknown: "), {"zram_devices": "what is this\n"}),
    "no match, as JSON": (Scene(1, err="--limit spark9", words=("plan", "--limit", "spark9", "--json")), {}),
    "nobody left": (Scene(1, err="leave no machine\n", words=(*PLAN, "--exclude", "spark1")), {}),
    "missing file": (Scene(1, err="no/such.yaml", words=("plan", "--rack", "no/such.yaml")), {}),
    "bad file": (Scene(1, err="typo-in-key.yaml:", words=("plan", "--rack", str(CASES / "typo-in-key.yaml"))), {}),
    "nowhere to keep it": (Scene(1, err="/dev/null/plan", words=(*PLAN, "--out", "/dev/null/plan")), {}),
    "no such verb": (Scene(1, err="No such command 'plna'", words=("plna",)), {}),
    "no such option": (Scene(1, err="No such option", words=("plan", "--dry")), {}),
    "no such role": (Scene(1, err="Invalid value for '--only'", words=("plan", "--only", "fabrik")), {}),
    "option without its value": (Scene(1, err="requires an argument", words=("plan", "--limit")), {}),
    "help": (Scene(0, "Exit codes: ", words=("--help",)), {}),
    "help of a verb": (Scene(0, "--only", words=("plan", "--help")), {}),
    "version": (Scene(0, "sparkrack, version", words=("--version",)), {}),
    "nothing said": (Scene(1, err="Usage: sparkrack", words=()), {}),
}
"""The same, by a node that no connection is made to: how it differs from a sound one."""


@pytest.mark.parametrize("name", INSIDE)
def test_it_ends_inside(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, differs = INSIDE[name]
    monkeypatch.setenv("RACK", str(tmp_path / "rack.yaml"))  # put back afterwards: a session sets it as well
    (tmp_path / "rack.yaml").write_text(SWITCH)
    answers = Answers(dict(usual("memory")) | {key.replace("_", "-"): value for key, value in differs.items()})
    with connected(loaded(SWITCH), {"spark1": answers}):
        done = CliRunner().invoke(sparkrack, list(scene.words), prog_name="sparkrack")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    judge(scene, Ended(done.exit_code, done.stdout, done.stderr))
    assert answers.sent == []


@dataclass
class Running:
    """A command in the middle of its run, before a node that never answers."""

    process: subprocess.Popen[str]
    node: SshNode
    folder: Path

    def ends(self) -> Ended:
        out, err = self.process.communicate(timeout=20)
        return Ended(self.process.returncode, out, err)

    @property
    def left(self) -> list[str]:
        """The files that are there now and were not before."""
        given = ("key", "known_hosts", "rack.yaml")
        return [str(path) for path in self.folder.rglob("*") if path.is_file() and path.name not in given]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    there = SshNode(hangs)
    rack = rack_file(tmp_path, there)
    words = [SPARKRACK, *PLAN, "--out", str(tmp_path / "kept.plan")]
    process = subprocess.Popen(
        words,
        env=settings(tmp_path, RACK=str(rack)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert there.begun.wait(20)
        yield Running(process, there, tmp_path)
    finally:
        process.kill()
        process.communicate()
        there.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_it_is_ended_in_the_middle(running: Running, number: signal.Signals, code: int) -> None:
    running.process.send_signal(number)
    ended = running.ends()
    assert (ended.code, ended.stdout) == (code, "")
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "KeyboardInterrupt" not in ended.stderr, ended.stderr
    assert running.node.left(), "a connection stayed open"
    assert running.left == []


SHORT = """\
import sys
import sparkrack.run.gevented
from sparkrack.ops import probe
from sparkrack.cli.main import main
probe.SECONDS = 2
main()
"""


def test_a_node_that_never_ends_its_answer_is_unknown(tmp_path: Path) -> None:
    there = SshNode(hangs)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SHORT, *PLAN],
            env=settings(tmp_path, RACK=str(rack_file(tmp_path, there))),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        there.close()
    assert (done.returncode, done.stderr) == (1, "")
    assert "unknown: state of the node: no whole answer in time (" in done.stdout


def on_terminal(folder: Path, speak: Speak, **env: str) -> tuple[int, str]:
    """The exit code, and what a person sees, who types nothing."""
    there = SshNode(speak)
    ours, its = pty.openpty()
    try:
        rack = rack_file(folder, there)
        process = subprocess.Popen(
            [SPARKRACK, *PLAN],
            env=settings(folder, RACK=str(rack), **env),
            stdin=its,
            stdout=its,
            stderr=its,
            preexec_fn=_take_terminal,
        )
        os.close(its)
        seen = b""
        while part := _part(ours):
            seen += part
        return process.wait(20), seen.decode()
    finally:
        os.close(ours)
        there.close()


def _take_terminal() -> None:
    """getpass asks whoever sits at the terminal that the process belongs to, whatever its streams are."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _part(screen: int) -> bytes:
    ready, _, _ = select.select([screen], [], [], 60)
    assert ready, "it waits for somebody to type"
    try:
        return os.read(screen, 4096)
    except OSError:  # Linux says so when the last process has closed the terminal
        return b""


def test_a_person_sees_colours(tmp_path: Path) -> None:
    code, seen = on_terminal(tmp_path, node(**SWAPS))
    assert code == 2
    assert ESCAPE in seen


def test_but_not_with_no_color(tmp_path: Path) -> None:
    code, seen = on_terminal(tmp_path, node(**SWAPS), NO_COLOR="1")
    assert code == 2
    assert "release zram0" in seen
    assert ESCAPE not in seen


def test_nobody_is_asked_for_a_password(tmp_path: Path) -> None:
    """pyinfra would: the test would not end."""
    code, seen = on_terminal(tmp_path, saying(1, "sudo: a password is required"))
    assert code == 1
    assert "sudo password:" not in seen
    assert "access.user needs sudo without one" in seen


@pytest.mark.parametrize("words", [PLAN, ("--help",)])
def test_nobody_reads_what_it_says(tmp_path: Path, words: tuple[str, ...]) -> None:
    rack = rack_file(tmp_path, None, closed_port())
    shell = ["sh", "-c", '{ "$@" 2> err; echo $? > code; } | true', "sh", SPARKRACK, *words]
    subprocess.run(shell, cwd=tmp_path, env=settings(tmp_path, RACK=str(rack)), stdin=subprocess.DEVNULL, timeout=60)
    assert ((tmp_path / "code").read_text(), (tmp_path / "err").read_text()) == ("1\n", "")
