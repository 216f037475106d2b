"""Workers share the tests file by file; those that need a virtual rack find it converged, whichever came before."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from gevent import monkey

from core.util import scrub
from tests.end_of_run import EndOfRun
from tests.lab_counts import LabCounts
from tests.scheduling import LAB, Workers, auto_workers
from tests.tiers import Tiers

# pyinfra's own command, parts of which we import, replaces threads and sockets of the process that imports it; xdist's
# threads do not outlive that. What needs it is tested in processes of its own.
monkey.patch_all = lambda *_, **__: True
# Options for this run are not meant for the runs of pytest that are tested.
os.environ.pop("PYTEST_ADDOPTS", None)
# The next step, a last line on stderr, is tested in tests/unit/cli/test_next_step.py; the other tests are about what a
# command itself prints.
os.environ["SPARKRACK_WITHIN"] = "tests"
# Whoever starts the tests in the background, or with nohup, has these ignored, and so would have every process that
# they start; one with a handler begins again.
signal.signal(signal.SIGINT, signal.default_int_handler)
# `timeout` and `kill` end a run as Ctrl-C does, so that fixtures take down the racks that they started.
signal.signal(signal.SIGTERM, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# A test that takes long on a busy machine has not failed.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _no_declared_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without the secrets that an earlier test of this process declared: they are removed from every text."""
    monkeypatch.setattr(scrub, "_declared", set())


@pytest.fixture(autouse=True)
def _signal_handlers_stay() -> Iterator[None]:
    """Restore the handlers of signals after a test, and fail the test that changed one: a later test of this process
    would run into it.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    changed = {number.name: signal.getsignal(number) for number in before if signal.getsignal(number) != before[number]}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert not changed, "the test has left other handlers of signals"


def pytest_collection_finish() -> None:
    """Freeze the imported and collected objects, thousands of tests: no later garbage collection visits them."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that select the soak tests, hand out files to workers and print the last lines."""
    tiers = Tiers(config)
    config.pluginmanager.register(tiers, "tiers")
    config.pluginmanager.register(EndOfRun(config, tiers), "end of run")
    config.pluginmanager.register(Workers(), "workers")
    config.pluginmanager.register(LabCounts(), "lab counts")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Asked before plugins are registered."""
    return auto_workers(config)


FIRST = "tests/lab/test_1_deploy.py"
"""It takes minutes, and makes the snapshot from which the others restore their rack."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """The rack's tests come first: only some workers may run them. The first file makes the snapshot; meanwhile another
    worker has one that makes a rack of its own. Files that leave their rack in any state come after those that keep it
    converged, since nothing has to be restored after them; then the other files that make a rack of their own, before
    which a worker takes down the one it has.
    """
    yield  # until only the tests of this run are left

    def with_fixture(name: str) -> set[Path]:
        return {item.path for item in items if name in getattr(item, "fixturenames", ())}

    on_the_workers, any_state = with_fixture("worker"), with_fixture("disposable_rack")
    own = {item.path for item in items if item.nodeid.startswith(LAB)} - on_the_workers
    second = max(own, default=None)  # of tests/lab, the last in the alphabet is the longest

    def place(item: pytest.Item) -> tuple[bool, ...]:
        if not item.nodeid.startswith(LAB):
            return (True,)
        first = item.nodeid.startswith(FIRST)
        return False, not first, item.path != second, item.path not in on_the_workers, item.path in any_state

    items.sort(key=place)
