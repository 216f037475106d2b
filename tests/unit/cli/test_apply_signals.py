"""`sparkrack apply` that a signal ends in the middle, as real processes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.ops import run_lock
from tests.unit.cli.rack_folder import ENVIRONMENT, NAMES, PROGRAM, World, many
from tests.unit.cli.runs import REPOSITORY

INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
SECONDS = 60
FIRST = "the operation in progress is finished first; repeat to interrupt it"
OFF = "ended in the middle of memory: Turn it off; an unconfirmed change is reverted by its machine within 90 s"


def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.02)


class Middle:
    """A run whose canary is done: spark2 and spark3 are in the middle of an operation, until `go`."""

    def __init__(self, folder: Path, *words: str) -> None:
        waits = {name: {"waits": True} for name in ("spark2", "spark3")}
        self.world = World(folder / "world", waits, new=())
        self.out = folder / "out"
        with self.out.open("w") as out:
            self.process = self.world.start("apply", "-y", *words, stdout=out, stderr=subprocess.STDOUT)
        until(lambda: all((self.world.folder / f"waiting-{name}").exists() for name in waits))

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def go(self) -> None:
        (self.world.folder / "go").touch()

    def end(self) -> int:
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()

    @property
    def text(self) -> str:
        return self.out.read_text()


@pytest.mark.parametrize("number", [INT, HUP], ids=["ctrl-c", "hang-up"])
def test_the_first_lets_the_operation_at_hand_end(tmp_path: Path, number: int) -> None:
    run = Middle(tmp_path)
    run.send(number)
    until(lambda: FIRST in run.text)
    assert run.process.poll() is None
    assert run_lock.holder(run.world.lock.read_text()).id == run.world.journals[0].stem
    run.go()
    assert run.end() == 1
    assert [run.world.things(name) for name in NAMES] == [["new", "old"]] * 3, "no operation has begun since"
    assert not run.world.lock.exists()
    lines = run.text.splitlines()
    assert lines[-4:-1] == [f"{name}: 1 operation changed it" for name in NAMES]
    assert lines[-1].startswith("stopped; journal: ")
    assert run.world.journal[-1]["result"] == "stopped"


def test_the_second_cuts_it_off(tmp_path: Path) -> None:
    """SIGTERM is as good; tests/unit/engine/test_signals.py has every pair."""
    run = Middle(tmp_path)
    run.send(INT)
    until(lambda: FIRST in run.text)
    run.send(TERM)
    assert run.end() == 1
    assert [run.world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["old", "old"]]
    assert not run.world.lock.exists()
    lines = run.text.splitlines()
    assert lines[-4] == "spark1: 1 operation changed it"
    assert lines[-3].startswith(f"spark2: {OFF}")
    assert lines[-2].startswith(f"spark3: {OFF}")
    assert lines[-1].startswith("interrupted; journal: ")
    assert "the old memory is back" in run.text
    assert "Traceback" not in run.text
    ended = run.world.journal[-1]
    assert (ended["event"], ended["result"]) == ("run_finished", "interrupted")
    assert ended["in_progress"] == dict.fromkeys(("spark2", "spark3"), "memory: Turn it off")


def test_killed_it_leaves_its_lock_and_a_journal_without_an_end(tmp_path: Path) -> None:
    run = Middle(tmp_path)
    run.send(KILL)
    run.end()
    journal = run.world.journal
    assert journal[-1]["event"] != "run_finished"
    left = run_lock.holder(run.world.lock.read_text())
    assert left.id == journal[0]["run"]
    run.go()
    until(lambda: run.world.things("spark3")[0] == "new")  # what was sent already goes on without us
    sent = len(run.world.sent)
    (second,) = many([{"folder": run.world.folder, "words": ["apply", "-y"]}])
    assert second.code == 1
    assert left.busy in second.stderr
    assert "is dead, its process on this machine is gone; to end its lock: sparkrack unlock" in second.stderr
    assert len(run.world.sent) == sent
    refused, agreed = many(
        [{"folder": run.world.folder, "words": ["apply"], "keys": keys} for keys in ("y\nn\n", "y\ny\n")]
    )
    assert (refused.code, agreed.code) == (1, 0), agreed.text
    assert left.busy in refused.stderr
    assert "is dead: its process on this machine is gone. End its lock? [y/N]: " in agreed.stdout
    assert not run.world.lock.exists()


def test_what_reads_may_go(tmp_path: Path) -> None:
    """As with `sparkrack apply -y | head -1`: no operation is ended in its middle, no other begins."""
    world = World(tmp_path / "world", {"spark1": {"waits": True}})
    run = f'{{ "$0" "$@" 2> {tmp_path}/stderr; echo $? > {tmp_path}/code; }}'
    reader = f"while [ ! -e {world.folder}/waiting-spark1 ]; do sleep 0.02; done; exec <&-; touch {world.folder}/go"
    words = ["/bin/sh", "-c", f"{run} | {{ {reader}; }}", *PROGRAM, str(world.folder), "apply", "-y"]
    subprocess.run(words, stdin=subprocess.DEVNULL, env=ENVIRONMENT, cwd=REPOSITORY, timeout=SECONDS, check=True)
    assert ((tmp_path / "code").read_text(), (tmp_path / "stderr").read_text()) == ("1\n", "")
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["old", "old"]]
    assert world.journal[-1]["result"] == "stopped"
    assert not world.lock.exists()
