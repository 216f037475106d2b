"""Each key of a switch is read from the legs on which nodes were heard, or is a gap; no default stands for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from core.model import ConfigError
from core.routeros.errors import RefusedError
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.yaml_writer import text
from switch.plan import plan
from tests.unit.discovery.worlds import World, world
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.switch.rows import QOS, Tables, reading, row

PORT, BOND = "/interface/bridge/port", "/interface/bonding"
LEGS = [f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)]
SECOND = [f"qsfp56-dd-2-{lane}" for lane in (1, 3, 5, 7)]


@pytest.fixture
def found() -> World:
    return world(
        loaded(changed(SWITCH, ("      qsfp56-dd-1:", "      qsfp56-dd-2: {split: 4x100G}\n      qsfp56-dd-1:")))
    )


def tables_of(found: World) -> Tables:
    return found.tables["crs812"]


def switch(sheet: RackDraft) -> dict[str, object]:
    keys: dict[str, object] = sheet.data["switches"]["crs812"]
    return keys


def gaps(gaps: Iterable[object]) -> str:
    return "\n".join(map(str, gaps))


def moved(tables: Tables, names: Iterable[str], bridge: str) -> None:
    tables["/interface/bridge"].append({".id": "*99", "name": bridge})
    for name in names:
        row(tables, name, PORT, "interface")["bridge"] = bridge


def test_sizes_and_bridge_are_those_of_the_legs_with_nodes_and_not_of_most_ports(found: World) -> None:
    for name in LEGS:
        row(tables_of(found), name).update({"l2mtu": "9014", "mtu": "9000"})
    moved(tables_of(found), LEGS, "fabric")
    sheet = found.sheet()
    assert {key: switch(sheet)[key] for key in ("mtu", "l2mtu", "bridge")} == {
        "mtu": 9000,
        "l2mtu": 9014,
        "bridge": "fabric",
    }
    assert [line for line in found.residue() if "is a second bridge" not in line] == []


def test_a_cage_without_nodes_that_differs_is_left_alone(found: World) -> None:
    for name in SECOND:
        row(tables_of(found), name).update({"l2mtu": "9216", "rx-flow-control": "on"})
    sheet = found.sheet()
    assert list(switch(sheet)["cages"]) == ["qsfp56-dd-1"]  # type: ignore[call-overload]
    assert (
        "switches.crs812.cages: qsfp56-dd-2 is 4x100G copper and no node was heard on it; its pause frames is on/off, "
        "its l2mtu is 9216" in gaps(sheet.unrepresentable)
    )
    assert found.residue() == ()


def test_init_declares_every_cage_with_a_split_since_the_file_has_other_values(found: World) -> None:
    for name in SECOND:
        row(tables_of(found), name).update({"l2mtu": "9216"})
    sheet = found.sheet(live=False)
    assert list(switch(sheet)["cages"]) == ["qsfp56-dd-1", "qsfp56-dd-2"]  # type: ignore[call-overload]


def test_legs_with_nodes_that_differ_are_named_one_by_one(found: World) -> None:
    row(tables_of(found), "qsfp56-dd-1-3")["l2mtu"] = "9216"
    sheet = found.sheet()
    assert switch(sheet)["l2mtu"] == 9500
    assert "l2mtu: qsfp56-dd-1-3 has 9216, most legs have 9500; a run sets 9500" in gaps(sheet.unrepresentable)


def test_a_size_that_no_leg_reports_is_missing_and_has_no_default(found: World) -> None:
    for name in (*LEGS, *SECOND):
        del row(tables_of(found), name)["l2mtu"]
    sheet = found.sheet()
    assert "l2mtu" not in switch(sheet)
    assert gaps(sheet.missing) == "switches.crs812.l2mtu: the legs report no l2mtu"


@pytest.mark.parametrize("name", ['lan "1"', "two words", "a,b"])
def test_a_bridge_whose_name_rack_yaml_does_not_take_makes_the_file_not_ready(found: World, name: str) -> None:
    moved(tables_of(found), (*LEGS, *SECOND), name)
    sheet = found.sheet()
    assert "switches.crs812.bridge: " in gaps(sheet.missing)
    assert "rename it on the switch" in gaps(sheet.missing)
    with pytest.raises(ConfigError):
        loaded(text(sheet))


@pytest.mark.parametrize(
    ("path", "field", "value", "key"),
    [
        ("/system/identity", "name", "my switch", "identity"),
        ("/system/routerboard", "serial-number", "H X", "serial"),
        ("/system/clock", "time-zone-name", "manual", "time_zone"),
    ],
)
def test_an_odd_value_of_a_key_that_may_be_absent_is_a_gap(
    found: World, path: str, field: str, value: str, key: str
) -> None:
    tables_of(found)[path][0].update({field: value, "time-zone-autodetect": "false"})
    sheet = found.sheet()
    assert key not in switch(sheet)
    assert f"switches.crs812.{key}: {value}: " in gaps(sheet.unrepresentable)
    loaded(text(sheet))


def test_subnets_of_ipv6_are_a_gap(found: World) -> None:
    for service in tables_of(found)["/ip/service"]:
        if service["name"] in ("api-ssl", "ssh", "winbox"):
            service["address"] = "10.77.0.0/24,fd00::/64"
        if service["name"] in ("telnet", "ftp", "www", "api"):
            service["disabled"] = "true"
    for path in ("/tool/mac-server", "/tool/mac-server/mac-winbox"):
        tables_of(found)[path][0]["allowed-interface-list"] = "none"
    for path in ("/tool/mac-server/ping", "/tool/bandwidth-server"):
        tables_of(found)[path][0]["enabled"] = "false"
    sheet = found.sheet()
    assert "management" not in switch(sheet)
    assert "switches.crs812.management: 10.77.0.0/24, fd00::/64: " in gaps(sheet.unrepresentable)


def test_a_leg_with_a_comma_in_its_name_is_a_gap(found: World) -> None:
    row(tables_of(found), "qsfp56-dd-1-1")["name"] = "spark,1"
    row(tables_of(found), "qsfp56-dd-1-1", PORT, "interface")["interface"] = "spark,1"
    row(tables_of(found), "qsfp56-dd-1-1", f"{QOS}/port", "name")["name"] = "spark,1"
    sheet = found.sheet()
    assert "leg qsfp56-dd-1-1 is called spark,1, and a list of RouterOS cannot hold" in gaps(sheet.unrepresentable)
    assert found.residue() == ()


def bonded(tables: Tables, *slaves: str, bridge: str = "bridge") -> None:
    """A bond of some interfaces, in the bridge instead of them."""
    tables[BOND].append({".id": "*B0", "name": "isl", "slaves": ",".join(slaves), "disabled": "false"})
    tables[PORT] = [port for port in tables[PORT] if port["interface"] not in slaves]
    member = {"bridge": bridge, "disabled": "false", "hw": "true", "hw-offload": "true", "dynamic": "false"}
    tables[PORT].append({".id": "*B1", "interface": "isl", **member})


def test_the_slaves_of_a_bond_are_a_gap_and_their_cage_is_left_alone(found: World) -> None:
    bonded(tables_of(found), "qsfp56-dd-2-1", "qsfp56-dd-2-5")
    sheet = found.sheet()
    assert list(switch(sheet)["cages"]) == ["qsfp56-dd-1"]  # type: ignore[call-overload]
    assert "cages: qsfp56-dd-2-1 and qsfp56-dd-2-5 are slaves of the bond isl" in gaps(sheet.unrepresentable)
    assert found.residue() == ()


def test_a_bond_that_is_off_has_no_slaves(found: World) -> None:
    tables_of(found)[BOND].append({".id": "*B0", "name": "isl", "slaves": "qsfp56-dd-2-1", "disabled": "true"})
    assert list(switch(found.sheet())["cages"]) == ["qsfp56-dd-1", "qsfp56-dd-2"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [("/interface/bridge", "mlag-peer-port", "isl"), (BOND, "mlag-id", "10")],
)
def test_mlag_is_named_and_a_run_refuses_the_switch(found: World, table: str, field: str, value: str) -> None:
    bonded(tables_of(found), "qsfp56-dd-2-1", "qsfp56-dd-2-5")
    tables_of(found)[table][0][field] = value
    assert "MLAG" in gaps(found.sheet().unrepresentable)
    rack = found.adopted()
    with pytest.raises(RefusedError, match="MLAG"):
        plan(rack, rack.switches["crs812"], reading(tables_of(found)))


@pytest.mark.parametrize("policy", ["none", "pause", "ecn", "roce"])
def test_a_policy_is_known_by_its_fields_and_its_rows_keep_their_names(policy: str) -> None:
    found = world(loaded(changed(SWITCH, ("    l2mtu: 9500\n", f"    l2mtu: 9500\n    lossless: {policy}\n"))))
    tables = tables_of(found)
    for table in ("profile", "priority-flow-control"):
        for one in tables[f"{QOS}/{table}"]:
            if one["name"] not in ("default", "disabled"):
                one["name"] = f"my {one['name']}"
    for port in tables[f"{QOS}/port"]:
        if port["pfc"] != "disabled":
            port["pfc"] = f"my {port['pfc']}"
    assert switch(found.sheet())["lossless"] == policy
    assert found.residue() == ()


def test_a_cage_without_nodes_that_has_another_policy_is_left_alone(found: World) -> None:
    row(tables_of(found), SECOND[0], f"{QOS}/port", "name")["trust-l3"] = "keep"
    sheet = found.sheet()
    assert switch(sheet)["lossless"] == "none"
    assert list(switch(sheet)["cages"]) == ["qsfp56-dd-1"]  # type: ignore[call-overload]
    assert "no node was heard on it; its policy is not none" in gaps(sheet.unrepresentable)
    assert found.residue() == ()


def test_a_policy_that_has_only_the_name_of_ours_is_left_as_it_is() -> None:
    found = world(loaded(changed(SWITCH, ("    l2mtu: 9500\n", "    l2mtu: 9500\n    lossless: roce\n"))))
    for port in tables_of(found)[f"{QOS}/port"]:
        if port["pfc"] != "disabled":
            port["trust-l3"] = "trust"
    sheet = found.sheet()
    assert switch(sheet)["lossless"] == "leave"
    assert (
        "lossless: it is none of none, pause, ecn and roce, so it is left as it is; against roce: port qsfp56-dd-1-1: "
        "trust-l3 is trust, wanted keep" in gaps(sheet.unrepresentable)
    )
    assert found.residue() == ()


def test_a_switch_without_cages_and_nodes_has_no_key_of_legs() -> None:
    found = world(loaded(SWITCH))
    found.hosts["crs812"] = {}
    for port in tables_of(found)["/interface/ethernet"]:
        port["auto-negotiation"] = "true"
    assert not {"mtu", "l2mtu", "lossless"} & switch(found.sheet()).keys()
