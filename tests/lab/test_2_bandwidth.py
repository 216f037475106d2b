"""`verify --bandwidth` from node to node: the tools meet over the real fabric, and each figure has its verdict. The
figures are the stand-in's: no virtual node has RDMA."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.lab.conftest import NODES
from tests.lab.virtual import VirtualRack

STALE, FORWARDED = "stale ConnectX-7", "CPU-forwarded"


@contextmanager
def carrying(rack: VirtualRack, node: str, gbps: Mapping[str, float]) -> Iterator[None]:
    """A node whose devices carry these Gbit/s."""
    hardware = rack.paths.node(node) / "shared/hardware.json"
    kept = hardware.read_text()
    hardware.write_text(json.dumps(json.loads(kept) | {"rdma": {name: {"gbps": to} for name, to in gbps.items()}}))
    try:
        yield
    finally:
        hardware.write_text(kept)


def measured(rack: VirtualRack, code: int) -> dict[tuple[str, str, int], tuple[tuple[float, ...], str]]:
    """What `verify --bandwidth` says of each half that sends: its figures and their verdict."""
    done = rack.verify("--only", "rdma", "--bandwidth", "--json", check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(done.stdout)["bandwidth"]
    assert all(len(one["halves"]) == 1 for one in found), "a leg of 100G is measured with one half at a time"
    return {(one["sender"], one["receiver"], one["halves"][0]): (tuple(one["gbps"]), one["verdict"]) for one in found}


def test_a_half_that_is_slow_is_named_with_its_reason_at_both_its_ends(rack: VirtualRack) -> None:
    ring = [(node, NODES[(number + 1) % len(NODES)]) for number, node in enumerate(NODES)]
    whole = {(here, there, half): ((109.0,), "healthy") for here, there in ring for half in (0, 1)}
    assert measured(rack, 0) == whole
    with carrying(rack, "spark2", {"rocep1s0f1": 13.2, "roceP2p1s0f1": 4.5}):
        found = measured(rack, 2)
    worse = {
        (here, there, half): ((gbps,), verdict)
        for here, there in ring
        if "spark2" in (here, there)
        for half, gbps, verdict in ((0, 13.2, STALE), (1, 4.5, FORWARDED))
    }
    assert found == whole | worse


def test_a_half_that_is_not_reached_is_not_measured_and_not_healthy(rack: VirtualRack) -> None:
    rack.ssh("spark2", "ip link set enP2p1s0f1np1 down")
    try:
        found = measured(rack, 1)
    finally:
        rack.deploy("-y", "--limit", "spark2", roles=("fabric",))
    dark = {pair for pair, (gbps, verdict) in found.items() if not gbps and verdict == "not measured"}
    assert dark == {("spark1", "spark2", 1), ("spark2", "spark3", 1)}
