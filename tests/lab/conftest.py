"""A virtual rack of three nodes for the tests here, in the order of the files: factory first, then converged. Each of
pytest's workers has one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual import REPOSITORY, VirtualRack

NODES = ("spark1", "spark2", "spark3")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands in this folder needs the virtual rack."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def factory() -> Iterator[VirtualRack]:
    """The rack as it comes up. It is taken down whatever happens."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    rack = VirtualRack(REPOSITORY / (f".lab-test-{worker}" if worker else ".lab-test"), NODES)
    rack.lab("down")
    try:
        rack.lab("up", "--nodes", str(len(NODES)))
        yield rack
    finally:
        rack.lab("down")


@pytest.fixture(scope="session")
def rack(factory: VirtualRack) -> VirtualRack:
    """The rack after a deploy."""
    factory.deploy("-y")
    return factory
