"""A VLAN for each half: tagged by the nodes, carried by the switch, and gone again when the file says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual import VirtualRack

ROLES = ("switch", "fabric")


@pytest.fixture
def tagged(rack: VirtualRack) -> Iterator[Path]:
    """The lab's rack file with VLANs, beside it; in the end the rack is without them."""
    file = rack.place.rack.with_name("rack-vlans.yaml")
    file.write_text(rack.place.rack.read_text().replace("fabric:\n", "fabric:\n  vlans: [1100, 1101]\n"))
    yield file
    rack.deploy("-y", roles=ROLES)
    assert "fabric0" not in rack.ssh("spark1", "ip -br link")
    file.unlink()


def test_both_halves_are_tagged_and_proven(rack: VirtualRack, tagged: Path) -> None:
    rack.deploy("-y", rack=tagged, roles=ROLES)
    assert "vlan protocol 802.1Q id 1100" in rack.ssh("spark1", "ip -d link show fabric0")
    rack.verify("--only", "switch", "--only", "fabric", rack=tagged)
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    rows = tables["/interface/bridge/vlan"]
    legs = "qsfp56-dd-1-1,qsfp56-dd-1-3,qsfp56-dd-1-5,qsfp56-dd-1-7"
    assert {row["vlan-ids"]: row["tagged"] for row in rows if row["dynamic"] == "false"} == {"1100": legs, "1101": legs}
    before = rack.etc(), rack.writes()
    rack.deploy("-y", rack=tagged, roles=ROLES)
    assert (rack.etc(), rack.writes()) == before
