"""The promise of the transaction, sentence by sentence: whatever goes wrong at any write of a full change
from the factory to every key of rack.yaml, the switch ends in its old state or in the new one.

docs/evidence/every-write.md is the table of these tests: a test for each cell and each release, which expects what
stands there. Each kind of write is tried once in the first tier, with the faults and the releases taken in turn; all
others are soak tests. Which writes there are is compared in each run, and written again with UPDATE_DOCS=1.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from core.routeros.reading import SwitchReading
from switch.executor import TransactionOutcome, disarmed
from switch.target_state import DeclaredTarget
from switch.transaction import Say, Step, Transaction
from tests.emulator.emulator_process import REPOSITORY, Crs812Process, stop_all
from tests.emulator.transactions import RELEASES, WHOLE, Operator, on_releases

DOCUMENT = REPOSITORY / "docs/evidence/every-write.md"

FAULTS: dict[str, dict[str, Any]] = {
    "refused": {"kind": "trap"},
    "dropped before": {"kind": "drop"},
    "dropped after": {"kind": "drop", "executed": True},
    "hangs before": {"kind": "hang"},
    "hangs after": {"kind": "mute"},
}
"""What goes wrong at a write: the connection breaks, or nothing is answered any more, before or after it was
carried out; or it is refused."""

KILLED = ("killed before", "killed after")
COLUMNS = (*FAULTS, *KILLED)
AFTER_RELEASE = "after the release, before the rollback timer is disarmed"
FUSE = 20.0
OLD, NEW = "old", "new"
_NAMES = ", ".join(release.split()[0] for release in RELEASES)


def _read_document() -> dict[int, tuple[str, dict[str, str]]]:
    """Each row of the document by its number: the write, and the outcome by column."""
    rows = re.findall(r"^\| (\d+) (/\S+) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return {int(number): (title, dict(zip(COLUMNS, cells.split(" | "), strict=True))) for number, title, cells in rows}


TABLE = _read_document()


def _list_cells(columns: Iterable[str]) -> list[ParameterSet]:
    """Release, column and number of each cell; the first write of each kind, each with the next fault, is of the first
    tier.
    """
    titles = [title for title, _ in TABLE.values()]
    first = {
        (COLUMNS[turn % len(COLUMNS)], 1 + titles.index(title)) for turn, title in enumerate(dict.fromkeys(titles))
    }
    return on_releases(itertools.product(columns, TABLE), first)


AROUND: list[tuple[str, dict[str, Any], str]] = [
    ("/safe-mode/take", {"kind": "drop", "executed": True}, OLD),
    ("/safe-mode/release", {"kind": "trap"}, OLD),
    ("/safe-mode/release", {"kind": "drop"}, OLD),
    ("/safe-mode/release", {"kind": "drop", "executed": True}, NEW),
    ("/safe-mode/release", {"kind": "mute"}, NEW),
    ("/system/scheduler/add", {"kind": "drop", "executed": True}, OLD),
    ("/system/scheduler/remove", {"kind": "drop"}, NEW),
    ("/system/scheduler/remove", {"kind": "drop", "executed": True}, NEW),
    ("/system/script/remove", {"kind": "trap"}, NEW),
]
"""Faults around the writes, and the state that the switch ends in."""


class Bench:
    """One emulated switch for all the runs, put back to the factory before each."""

    def __init__(self, folder: Path, release: str = RELEASES[-1]) -> None:
        folder.mkdir(exist_ok=True)
        self.emulator = Crs812Process(folder / "switch", version=release, settle=0.0).start()
        self.operator = Operator(folder, self.emulator, WHOLE, {"vlans": [1100, 1101]}, timeout=1.5)
        self.goal: DeclaredTarget = self.operator.goal()
        self.old = self.operator.reading(self.goal)
        self.titles: list[str] = []
        ended, _ = self.run(lambda step: self.titles.append(step.sentence[0]) if _is_write(step) else None)
        assert ended.done, ended
        self.new = self.operator.reading(self.goal)

    def run(self, show: Any = lambda _step: None) -> tuple[TransactionOutcome, Transaction]:
        self.emulator.control({"op": "reset"})
        return self.operator.run(self.goal, show, fuse=FUSE)

    def state(self) -> str:
        """Which state the switch is in, by every field that a run compares."""
        now = self.operator.reading(self.goal)
        menus = self.goal.menus
        found = [name for name, state in ((OLD, self.old), (NEW, self.new)) if _has_same_rows(now, state, menus)]
        odd = [menu.path for menu in menus if not _has_same_rows(now, self.old, (menu,))]
        assert found, f"the switch is between its old state and the new one: {odd}"
        return found[0]

    def left_overs(self) -> list[str]:
        """Rows of a rollback timer that is still armed."""
        tables = self.emulator.state()["tables"]
        return [row["name"] for path in ("/system/scheduler", "/system/script") for row in tables[path]]


def _has_same_rows(one: SwitchReading, other: SwitchReading, menus: Any) -> bool:
    return one.same(other, menus)


def _is_write(step: Step) -> bool:
    return isinstance(step, Say) and not step.sentence[0].startswith("/safe-mode")


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bench]]:
    """The switch of each release, started when it is first asked for."""
    folder = tmp_path_factory.mktemp("every-write")
    os.environ["CRS812_PASSWORD"] = "unused: the operator here has the emulator's own"
    made: dict[str, Bench] = {}

    def of(release: str) -> Bench:
        if release not in made:
            made[release] = Bench(folder / release.split()[0], release)
        return made[release]

    yield of
    stop_all(bench.emulator for bench in made.values())


@pytest.fixture
def bench(benches: Callable[[str], Bench], release: str) -> Bench:
    """The switch of the release that the test is about."""
    return benches(release)


@pytest.mark.parametrize(("release", "name", "number"), _list_cells(FAULTS))
def test_a_fault_at_every_write(bench: Bench, name: str, number: int) -> None:
    bench.emulator.control({"op": "reset"})
    # The first two writes are the rows of the rollback timer.
    bench.emulator.control({"op": "fault", "on": "write", "after": number + 1, **FAULTS[name]})
    ended, _ = bench.operator.run(bench.goal, fuse=FUSE)
    at = f"{name} at write {number}, {bench.titles[number - 1]}: {ended.text}"
    assert not ended.done, at
    assert ended.text.startswith(("stopped at: writing", "stopped at: binding")), at
    assert "looked again: the switch is as it was before the run" in ended.text, at
    assert bench.state() == OLD == TABLE[number][1][name], at
    assert bench.left_overs() == [], at


@pytest.mark.parametrize(("release", "name", "number"), _list_cells(KILLED))
def test_the_controller_killed_at_every_write(bench: Bench, name: str, number: int) -> None:
    """SIGKILL: no further sentence comes. Safe mode goes with the session; the rollback timer finds nothing to
    undo and takes itself away."""
    bench.emulator.control({"op": "reset"})
    _run_killed(bench, number - 1 + (name == "killed after"))
    at = f"{name} write {number}, {bench.titles[number - 1]}"
    assert bench.state() == OLD == TABLE[number][1][name], at
    assert bench.left_overs(), at
    downs = bench.emulator.state()["links"]["qsfp56-dd-1-1"]["downs"]
    bench.emulator.control({"op": "pass", "seconds": FUSE})
    _wait_until(lambda: not bench.left_overs(), at)
    assert bench.state() == OLD, at
    assert bench.emulator.state()["links"]["qsfp56-dd-1-1"]["downs"] == downs, f"{at}: a link went down"


@pytest.mark.parametrize("release", on_releases([()], [()], begin=1))
def test_killed_between_release_and_proof(bench: Bench) -> None:
    """The one moment that safe mode does not cover: released, and the run is dead. The rollback timer reverts all."""
    bench.emulator.control({"op": "reset"})
    _run_killed(bench, None)
    assert bench.state() == NEW
    bench.emulator.control({"op": "pass", "seconds": FUSE})
    _wait_until(lambda: not bench.left_overs(), "after the release")
    assert bench.state() == OLD


@pytest.mark.parametrize("release", on_releases([()], [()], begin=2))
def test_killed_after_the_release_and_run_again(bench: Bench) -> None:
    """The next run finds nothing to change but the armed timer, disarms it, and nothing is undone later."""
    bench.emulator.control({"op": "reset"})
    _run_killed(bench, None)
    assert bench.left_overs()
    todo = bench.goal.plan(bench.operator.reading(bench.goal))
    assert (todo.batches, len(todo.armed)) == ((), 1)
    with bench.operator.line() as line:
        ended = disarmed(bench.goal, line, todo.armed)
    assert ended.done, ended
    assert bench.left_overs() == []
    bench.emulator.control({"op": "pass", "seconds": 10 * FUSE})
    assert bench.state() == NEW


@pytest.mark.parametrize(("release", "match", "fault", "state"), on_releases(AROUND, AROUND))
def test_a_fault_around_the_writes(bench: Bench, match: str, fault: dict[str, Any], state: str) -> None:
    bench.emulator.control({"op": "reset"})
    bench.emulator.control({"op": "fault", "match": match, **fault})
    ended, _ = bench.operator.run(bench.goal, fuse=FUSE)
    assert ended.done == (state == NEW), ended.text
    words = "the switch is as it was before" if state == OLD else "the switch is as declared, the release came through"
    assert words in ended.text
    assert bench.state() == state
    assert bench.left_overs() == []


@pytest.mark.parametrize("release", on_releases([()], [()]))
def test_the_document_says_what_happened(bench: Bench) -> None:
    """It names the writes of a run, in their order. Each outcome in it is compared by the test of that cell."""
    assert len(bench.titles) > 25
    text = _render_document(bench.titles)
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text


def _render_document(titles: list[str]) -> str:
    head = f"""# A fault at every write of the switch

Generated by `tests/emulator/test_every_write.py`. One run takes an emulated CRS812 from factory state to every key of
rack.yaml, including `lossless: roce` and VLANs: {len(titles)} writes, on each of three releases ({_NAMES}). At each of
them, in turn, the connection is dropped or goes silent (before or after the switch executed the write), the write is
refused, or the controller is killed with SIGKILL. *old*: the switch ended in the state it had before the run. *new*: in
the declared state. No other result occurs. Killed controllers print nothing; all others end with "looked again: the
switch is as it was before the run", and the test checks this itself.

| write | {" | ".join(COLUMNS)} |
| --- |{" --- |" * len(COLUMNS)}
"""
    lines = [f"| {number} {title} |{f' {OLD} |' * len(COLUMNS)}" for number, title in enumerate(titles, start=1)]
    # The two tests of a kill there say so.
    after = (
        f"| {AFTER_RELEASE} |{'  |' * len(FAULTS)} {OLD} when the timer fires | {NEW} when the next run disarms it |"
    )
    return head + "\n".join([*lines, after]) + "\n"


def _run_killed(bench: Bench, writes: int | None) -> None:
    """Run in a process of its own that kills itself: before its n-th write, or (None) after the release."""
    child = os.fork()
    if child == 0:
        count = 0

        def show(step: Step) -> None:
            nonlocal count
            over = isinstance(step, Say) is False and step.title == "logging in again after the release"
            if over if writes is None else count >= writes and (_is_write(step) or _is_last_check(step)):
                os.kill(os.getpid(), signal.SIGKILL)
            count += _is_write(step)

        bench.operator.run(bench.goal, show, fuse=FUSE)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it could be killed"
    _wait_until(lambda: bench.emulator.state()["safe_mode"]["holder"] is None, "the session of the killed run")


def _is_last_check(step: Step) -> bool:
    """A check after the last write: killed there is killed after that write."""
    return bool(re.match("looking whether safe mode is still ours|reading everything back|waiting", step.title))


def _wait_until(condition: Any, what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.05)
