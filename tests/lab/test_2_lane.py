"""A lane of the switch broken by hand: exactly its node is cut off, both ends are named, and a run repairs it."""

from __future__ import annotations

import re

import pytest

from tests.lab.conftest import NODES
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=8)

PARTS = ("--only", "fabric", "--only", "switch")


def test_a_wrong_lane_breaks_exactly_its_nodes_pairs(rack: VirtualRack) -> None:
    """One lane is set to another speed by hand, as over any API client."""
    sentence = ("/interface/ethernet/set", "=.id=qsfp56-dd-1-3", "=speed=50G-baseCR")
    rack.inside("pyinfra", "inventory.py", "exec", "--limit", "switches", "--", *sentence)
    seen = rack.verify(*PARTS, check=False)
    assert seen.returncode == 2
    pairs = re.findall(r"(spark\d)/\S+ does not reach (spark\d)/", seen.stdout)
    assert len(pairs) == 2 * 2 * (len(NODES) - 1)
    assert all("spark2" in pair for pair in pairs)
    leg = "spark2 on leg crs812/qsfp56-dd-1-3, lanes 3-4"
    assert f"{leg}: the switch reports status no-link" in seen.stdout
    assert f"{leg}: enp1s0f1np1 sees no link" in seen.stdout
    before = rack.etc()
    rack.deploy("-y", roles=("switch",))
    assert rack.etc() == before
    assert re.search(r"passed, 0 failed$", rack.verify(*PARTS).stdout, re.MULTILINE)
