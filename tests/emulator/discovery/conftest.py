"""Nodes and a switch that nobody described yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.crs812.config import Cable, Tail
from tests.emulator.conftest import MakeSwitch
from tests.unit.discovery.shellnode import standing
from tests.unit.discovery.worlds import mac, world

from .site import HAND, Site


@pytest.fixture(scope="module", autouse=True)
def _no_nodes() -> None:
    """Here are nodes, and the real ssh."""


@pytest.fixture
def site(tmp_path: Path, make_switch: MakeSwitch) -> Iterator[Site]:
    """As it is out of the box on the switch, and numbered by hand on the nodes."""
    told = world(HAND)
    tails = tuple(
        Tail(lane=lane, lanes=2, gbps=100, node=name, port=1, macs=tuple(mac(half).upper() for half in port.halves))
        for lane, name in ((1, "spark1"), (3, "spark2"))
        for port in HAND.cabling.ports_of(name)
    )
    switch = make_switch(cables=(Cable(cage="qsfp56-dd-1", tails=tails),))
    nodes = standing(tmp_path, told, {"spark1": "127.0.88.11", "spark2": "127.0.88.12"})
    yield Site(tmp_path, told, nodes, switch)
    for node in nodes.values():
        node.close()
