"""A run that is killed at a random moment, and the run after it: the switch is never left between two states, and
nothing is undone later."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from switch.executor import TransactionOutcome, disarmed, execute
from switch.transaction import Transaction
from tests.emulator.test_every_write import NEW, Bench, bench, benches
from tests.emulator.transactions import on_releases

SEEDS = 100
QUICK = 5
FUSE = 20.0
NAMES = {
    name: f"sparkrack-undo-20260101T000000-000{number}"
    for number, name in enumerate(("measured", "killed", "second", "third"))
}
SETTLE = 0.2


__all__ = ["bench", "benches"]
"""Fixtures of the module that they come from."""


def whole_run(bench: Bench, name: str) -> TransactionOutcome:
    """What a run does: read, compare, carry out, or only disarm what an earlier one left."""
    goal = bench.goal
    with bench.operator.line() as line:
        before = goal.read(lambda sentence: line.talk(*sentence))
        todo = goal.plan(before)
        if not todo.batches:
            return disarmed(goal, line, todo.armed) if todo.armed else TransactionOutcome(True, "nothing to do")
        transaction = Transaction(NAMES[name], goal, before, todo, settle=10, fuse=FUSE)
        return execute(transaction, line, timeout=5.0)


def seconds(bench: Bench) -> float:
    """How long a run takes now: the machine may be busy."""
    bench.emulator.control({"op": "reset"})
    begin = time.monotonic()
    assert whole_run(bench, "measured").done
    return time.monotonic() - begin


def killed_after(bench: Bench, wait: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            whole_run(bench, "killed")
        finally:
            os._exit(0)
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _wait_until(condition: Any, what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


KILLS = [(number,) for number in range(SEEDS)]


@pytest.mark.parametrize(("release", "seed"), on_releases(KILLS, KILLS[:QUICK]))
def test_killed_at_a_random_moment(bench: Bench, seed: int) -> None:
    bench.emulator.control({"op": "settle", "seconds": SETTLE})
    wait = random.Random(seed).uniform(0, 1.1) * seconds(bench)  # noqa: S311 - no secret
    bench.emulator.control({"op": "reset"})
    killed_after(bench, wait)
    at = f"seed {seed}, killed after {wait:.3f} s"
    _wait_until(lambda: bench.emulator.state()["safe_mode"]["holder"] is None, f"{at}: safe mode is still held")
    bench.state()  # old or new, never between
    ended = whole_run(bench, "second")
    assert ended.done, (at, ended)
    assert bench.state() == NEW, at
    assert bench.left_overs() == [], at
    bench.emulator.control({"op": "pass", "seconds": 100 * FUSE})
    time.sleep(0.05)
    assert bench.state() == NEW, f"{at}: undone later"
    assert whole_run(bench, "third").text == "nothing to do", at
