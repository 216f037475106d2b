"""Nodes and a switch without a rack file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.routeros_emulator.config import CableTail, EmulatedCable
from tests.emulator.conftest import MakeSwitch
from tests.emulator.discovery.discovery_fixtures import HAND, Site
from tests.unit.discovery.shellnode import standing
from tests.unit.discovery.worlds import mac, world


@pytest.fixture(scope="module", autouse=True)
def _no_nodes() -> None:
    """Use nodes, and the real ssh."""


@pytest.fixture
def site(tmp_path: Path, make_switch: MakeSwitch) -> Iterator[Site]:
    yield from two_nodes(tmp_path, make_switch)


def two_nodes(tmp_path: Path, make_switch: MakeSwitch, **emulator: str) -> Iterator[Site]:
    """A switch in factory state, and nodes with manual addresses."""
    reported = world(HAND)
    tails = tuple(
        CableTail(
            lane=lane, lanes=2, gbps=100, node=name, port=1, macs=tuple(mac(half).upper() for half in port.halves)
        )
        for lane, name in ((1, "spark1"), (3, "spark2"))
        for port in HAND.cabling.ports_of(name)
    )
    switch = make_switch(cables=(EmulatedCable(cage="qsfp56-dd-1", tails=tails),), **emulator)
    nodes = standing(tmp_path, reported, {"spark1": "127.0.88.11", "spark2": "127.0.88.12"})
    yield Site(tmp_path, reported, nodes, switch)
    for node in nodes.values():
        node.close()
