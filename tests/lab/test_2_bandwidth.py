"""`verify --bandwidth` from node to node: the tools meet over the real fabric, and each figure has its verdict. The
figures are the stand-in's: no virtual node has RDMA."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=13)


@contextmanager
def carrying(rack: VirtualRack, node: str, gbps: float) -> Iterator[None]:
    """A node whose first half carries these Gbit/s."""
    hardware = rack.paths.node(node) / "shared/hardware.json"
    kept = hardware.read_text()
    document = json.loads(kept)
    document["rdma"]["rocep1s0f1"]["gbps"] = gbps
    hardware.write_text(json.dumps(document))
    try:
        yield
    finally:
        hardware.write_text(kept)


def test_each_half_has_its_figure_and_its_verdict_at_both_its_ends(rack: VirtualRack) -> None:
    """One measurement: a half that is slow, one that is slower, one that is not reached, and whole ones."""
    rack.ssh("spark2", "ip link set enP2p1s0f1np1 down")
    try:
        with carrying(rack, "spark2", 13.2), carrying(rack, "spark3", 4.5):
            done = rack.verify("--only", "rdma", "--bandwidth", "--json", check=False)
    finally:
        rack.deploy("-y", "--limit", "spark2", roles=("fabric",))
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)["bandwidth"]
    assert all(len(one["halves"]) == 1 for one in found), "a leg of 100G is measured with one half at a time"
    assert {(one["sender"], one["receiver"], *one["halves"]): (*one["gbps"], one["verdict"]) for one in found} == {
        ("spark1", "spark2", 0): (13.2, "stale ConnectX-7"),
        ("spark1", "spark2", 1): ("not measured",),
        ("spark2", "spark3", 0): (4.5, "slow by the chip"),
        ("spark2", "spark3", 1): ("not measured",),
        ("spark3", "spark1", 0): (4.5, "slow by the chip"),
        ("spark3", "spark1", 1): (109.0, "healthy"),
    }
