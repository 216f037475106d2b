"""How a `sparkrack` command ends that is cut off: by a signal, by a silent node, by the reader of its output."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.cli.cli_fixtures import PLAN, SPARKRACK, closed_port, hangs, settings
from tests.unit.cli.runs import Ended
from tests.unit.engine.ssh_node import SshNode, rack_file


@dataclass
class Running:
    """A command in the middle of its run, before a node that never answers."""

    process: subprocess.Popen[str]
    node: SshNode
    folder: Path

    def ends(self) -> Ended:
        out, err = self.process.communicate(timeout=60)
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
        assert there.begun.wait(60)
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
import sparkrack.engine.gevent_patch
from core.ops import host_facts
from sparkrack.cli.main import main
host_facts.ANSWER_SECONDS = 2
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
    assert "unknown: state of the node: no answer within 2 s" in done.stdout


@pytest.mark.parametrize("words", [PLAN, ("--help",)])
def test_no_one_reads_what_it_says(tmp_path: Path, words: tuple[str, ...]) -> None:
    rack = rack_file(tmp_path, None, closed_port())
    shell = ["sh", "-c", '{ "$@" 2> err; echo $? > code; } | true', "sh", SPARKRACK, *words]
    subprocess.run(shell, cwd=tmp_path, env=settings(tmp_path, RACK=str(rack)), stdin=subprocess.DEVNULL, timeout=60)
    assert ((tmp_path / "code").read_text(), (tmp_path / "err").read_text()) == ("1\n", "")
