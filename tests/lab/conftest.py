"""A virtual rack of three nodes for the tests here. Each of pytest's workers has one, and each file finds it converged:
it leaves it so, or a failure makes the next file begin with a restored one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.converged import converged
from tests.lab.virtual import REPOSITORY, VirtualRack
from tests.scheduling import LAB

NODES = ("spark1", "spark2", "spark3")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder: all need the virtual rack."""
    for item in items:
        if item.nodeid.startswith(LAB):
            item.add_marker(pytest.mark.lab)


@dataclass
class Worker:
    """The rack of one worker, and after how many failures of the session it was last known to be converged."""

    folder: Path
    rack: VirtualRack | None = None
    failures: int = 0


WORKER = pytest.StashKey[Worker]()


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """Its rack is taken down whatever happens."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    found = Worker(REPOSITORY / (f".lab-test-{name}" if name else ".lab-test"))
    request.config.stash[WORKER] = found
    try:
        yield found
    finally:
        VirtualRack(found.folder, NODES).lab("down")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the rack before a file that does not use it: one without a rack, or with one of its own."""
    worker = item.config.stash.get(WORKER, None)
    if worker is None or nextitem is None or nextitem.path == item.path:
        return
    if worker.folder.exists() and "worker" not in getattr(nextitem, "fixturenames", ()):
        VirtualRack(worker.folder, NODES).lab("down")
        worker.rack = None


@pytest.fixture(scope="module")
def rack(worker: Worker, request: pytest.FixtureRequest) -> VirtualRack:
    """A converged rack."""
    if worker.rack is None or worker.failures != request.session.testsfailed or not worker.folder.exists():
        worker.rack = converged(worker.folder, NODES)
        worker.failures = request.session.testsfailed
    return worker.rack


@pytest.fixture(scope="module")
def disposable_rack(worker: Worker, rack: VirtualRack) -> Iterator[VirtualRack]:
    """A converged rack that a file may leave in any state: it is taken down, and the next file begins with a restored
    one.
    """
    yield rack
    rack.lab("down")
    worker.rack = None
