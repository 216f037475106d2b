"""Racks without a switch: two nodes on one cable, three in a ring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.model import load
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=6)

RACKS = REPOSITORY / "tests/cases/racks/valid"


ROLES = ("preflight", "fabric", "rdma")
"""Those to which the cables matter."""


@pytest.fixture(params=["direct", pytest.param("ring", marks=pytest.mark.soak)])
def cabled(request: pytest.FixtureRequest) -> Iterator[VirtualRack]:
    """A lab of a rack whose cables end at nodes."""
    file = RACKS / f"{request.param}.yaml"
    rack = VirtualRack(REPOSITORY / f".lab-test-{request.param}", tuple(load(file).nodes))
    rack.lab("down")
    try:
        rack.lab("up", "--rack", str(file))
        yield rack
    finally:
        rack.lab("down")


def test_a_rack_without_a_switch_converges(cabled: VirtualRack) -> None:
    cabled.deploy("-y", roles=ROLES)
    assert "0 failed" in cabled.verify(*(word for role in ROLES for word in ("--only", role))).stdout
    before = cabled.etc()
    cabled.deploy("-y", roles=ROLES)
    assert cabled.etc() == before
