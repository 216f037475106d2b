"""One root file system for all tests, and nodes that end with their test."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import BenchError
from benchmarks.image import root
from lab.paths import cache
from tests.contact.nodes import Node, Operator, Seed, free_port, start

Rack = Callable[..., Operator]


@pytest.fixture(scope="session")
def image() -> Path:
    """The tree that all nodes start from, made once for each machine."""
    if os.geteuid() != 0:
        pytest.skip("namespaces of a node need root")
    folder = cache() / "contact"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # One of several processes of pytest makes it, the others wait.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return root(folder, print)
    except BenchError as fault:
        pytest.skip(f"no root file system: {fault}")


@pytest.fixture
def rack(image: Path, tmp_path: Path) -> Iterator[Rack]:
    """Makes a rack of nodes from their box, a seed for each, and its operator."""
    started: list[Node] = []

    def make(*seeds: Seed) -> Operator:
        port = free_port()
        for number, seed in enumerate(seeds or (Seed(),), start=1):
            started.append(start(image, tmp_path, f"spark{number}", f"127.0.77.{10 + number}", port, seed))
        return Operator(tmp_path, {node.name: node for node in started})

    yield make
    for node in started:
        node.end()
