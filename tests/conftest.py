"""Workers share the tests file by file; those that need a virtual rack find it converged, whichever came before."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import hypothesis
import pytest
from gevent import monkey

from tests.tiers import Tiers

# pyinfra's own command, parts of which we import, replaces threads and sockets of the process that imports it; xdist's
# threads do not outlive that. What needs it is tested in processes of its own.
monkey.patch_all = lambda *_, **__: True
# Options for this run are not meant for the runs of pytest that are tested.
os.environ.pop("PYTEST_ADDOPTS", None)
# Whoever starts the tests in the background, or with nohup, has these ignored, and so would have every process that
# they start; one with a handler begins anew.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# A test that takes long on a busy machine has not failed.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """What was imported and collected, about 9000 tests, stays to the end: no later garbage collection looks at it."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Which of the soak tests run is chosen there."""
    config.pluginmanager.register(Tiers(config), "tiers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rack's tests come first, since their files take longest."""
    folder = Path(__file__).parent / "lab"
    items.sort(key=lambda item: folder not in item.path.parents)
