"""A VLAN for each half: tagged by the nodes, carried by the switch, and gone again when the file says so."""

from __future__ import annotations

import re

import pytest

from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=9)

ROLES = ("switch", "fabric")
VLAN = "/interface/bridge/vlan"


def test_a_vlan_for_each_half_is_carried_by_its_legs_alone_and_goes_again(rack: VirtualRack) -> None:
    """Tagged and proven; then a leg is taken out of one half's VLAN by hand: that half of its node is cut off, the
    other half is not. One run repairs it, and one with the file without VLANs takes all back.
    """
    tagged = rack.paths.rack.with_name("rack-vlans.yaml")
    tagged.write_text(rack.paths.rack.read_text().replace("fabric:\n", "fabric:\n  vlans: [1100, 1101]\n"))
    rack.deploy("-y", rack=tagged, roles=ROLES)
    assert "vlan protocol 802.1Q id 1100" in rack.ssh("spark1", "ip -d link show fabric0")
    rack.verify("--only", "switch", "--only", "fabric", rack=tagged)
    rows = vlans(rack)
    legs = "qsfp56-dd-1-1,qsfp56-dd-1-3,qsfp56-dd-1-5,qsfp56-dd-1-7"
    assert {row["vlan-ids"]: row["tagged"] for row in rows} == {"1100": legs, "1101": legs}

    (row,) = [row for row in rows if row["vlan-ids"] == "1100"]
    others = ",".join(leg for leg in row["tagged"].split(",") if leg != "qsfp56-dd-1-3")
    sentence = (f"{VLAN}/set", f"=.id={row['.id']}", f"=tagged={others}")
    rack.inside("pyinfra", "inventory.py", "exec", "--limit", "switches", "--", *sentence)
    # The other node answers no longer once the kernels of both have taken the change up.
    gone = "for _ in $(seq 60); do ping -qc1 -W1 192.168.100.2 >/dev/null || exit 0; sleep 0.5; done; exit 1"
    rack.ssh("spark1", gone)
    rack.ssh("spark1", "ping -qc1 -W5 192.168.100.3 && ping -qc1 -W5 192.168.101.2")
    seen = rack.verify("--only", "fabric", rack=tagged, check=False)
    assert seen.returncode == 2
    cut = re.findall(r"(spark\d)/(\S+) does not reach (spark\d)/", seen.stdout)
    assert {half for _, half, _ in cut} == {"enp1s0f1np1"}
    assert {(one, other) for one, _, other in cut} == {
        pair for node in ("spark1", "spark3") for pair in (("spark2", node), (node, "spark2"))
    }

    etc = rack.etc()
    rack.deploy("-y", rack=tagged, roles=ROLES)
    assert rack.etc() == etc
    rack.ssh("spark1", "for _ in $(seq 60); do ping -qc1 -W1 192.168.100.2 && exit; sleep 0.5; done; exit 1")
    rack.deploy("-y", roles=ROLES)
    assert "fabric0" not in rack.ssh("spark1", "ip -br link")
    tagged.unlink()


def vlans(rack: VirtualRack) -> list[dict[str, str]]:
    """The rows of the switch's table that a run wrote."""
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    return [row for row in tables[VLAN] if row["dynamic"] == "false"]
