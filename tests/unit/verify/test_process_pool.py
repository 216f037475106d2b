"""Processes side by side: one that dies takes no other's result along, and none outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

import pytest

from core.util.process_pool import map_processes
from lab.namespace import alive
from tests.generated import REPOSITORY
from tests.unit.verify.pool_work import deaf, doubled, shared


def test_results_come_in_the_order_of_the_calls() -> None:
    assert map_processes(doubled, [(1,), (2,), (3,)], 2) == [2, 4, 6]
    assert map_processes(doubled, [], 2) == []


def test_what_is_loaded_once_is_shared() -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined] # it loads modules when it starts
    assert map_processes(shared, [("sndhdr",), ("wave",)], 2, ["wave"]) == [(False, True), (True, True)]


def test_a_process_that_dies_is_reported() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    found = map_processes(doubled, [(1,), (-1,), (3,)], 1)
    assert found[1] is None
    assert found[0] in (2, None)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_ctrl_c_is_left_to_the_run_itself() -> None:
    """It reaches every process of a terminal; each would print where it was."""
    assert map_processes(deaf, [()], 1) == [True]


def test_ctrl_c_is_left_to_the_run_itself_by_a_server_of_forks_that_another_thread_started() -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    first = threading.Thread(target=map_processes, args=(doubled, [(1,)], 1))
    first.start()
    first.join()
    assert map_processes(deaf, [()], 1) == [True]


def test_outside_the_main_thread_too() -> None:
    found: list[int | None] = []
    thread = threading.Thread(target=lambda: found.extend(map_processes(doubled, [(4,)], 1)))
    thread.start()
    thread.join(60)
    assert found == [8]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "all"])
def test_no_one_is_left_when_the_run_is_ended(
    tmp_path: Path, number: signal.Signals, kill: Callable[[int, int], None]
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.verify.pool_work", tmp_path],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        waited(lambda: len(list(tmp_path.glob("[ab]"))) == 2)
        kill(run.pid, number)
        _, reported = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 3
    assert b"Traceback" not in reported, reported.decode()
    # The process that forked them may have been ended as well: then it is init that takes note of their end.
    waited(lambda: not [file for file in tmp_path.glob("[ab]") if alive(int(file.read_text()))])


def waited(until: Callable[[], bool]) -> None:
    """Wait 60 s at most."""
    for _ in range(1200):
        if until():
            return
        time.sleep(0.05)
    raise AssertionError("it did not become so")
