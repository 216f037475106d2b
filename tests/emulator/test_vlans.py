"""The bridge VLAN table: static rows, rows that PVIDs bring, and which ports carry a VLAN now."""

from __future__ import annotations

import pytest

from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_links import configure, node
from tests.emulator.test_qos import done
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

BRIDGE, PORT, VLAN = "/interface/bridge", "/interface/bridge/port", "/interface/bridge/vlan"


def table(client: RawClient) -> dict[str, tuple[set[str], set[str], str]]:
    """The VLAN rows by id list: who is tagged and untagged now, and whether the row is dynamic."""

    def names(text: str) -> set[str]:
        return set(filter(None, text.split(",")))

    return {
        row["vlan-ids"]: (names(row["current-tagged"]), names(row["current-untagged"]), row["dynamic"])
        for row in rows(client, VLAN)
    }


def filtering(client: RawClient) -> None:
    """Let the bridge filter, once ether1 has settled."""
    until(lambda: one(client, "/interface/ethernet", "?name=ether1")["running"] == "true")
    done(client, f"{BRIDGE}/set", "=numbers=bridge", "=vlan-filtering=yes")


def test_nothing_is_in_force_until_the_bridge_filters(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    assert rows(client, VLAN) == []
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1100", "=tagged=bridge,ether1")
    assert table(client) == {"1100": (set(), set(), "false")}
    filtering(client)
    assert table(client) == {"1100": ({"bridge", "ether1"}, set(), "false"), "1": (set(), {"bridge", "ether1"}, "true")}


def test_pvids_join_static_rows_or_make_dynamic_ones(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    filtering(client)
    done(client, f"{PORT}/set", "=numbers=qsfp56-dd-1-1", "=pvid=1100")
    done(client, f"{PORT}/set", "=numbers=qsfp56-dd-1-3", "=pvid=1101")
    assert table(client)["1100"] == (set(), {"qsfp56-dd-1-1"}, "true")
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1101,1100", "=tagged=qsfp56-dd-1-3,qsfp56-dd-1-5,sfp56-1")
    now = table(client)
    assert now["1100-1101"] == ({"qsfp56-dd-1-3", "qsfp56-dd-1-5"}, {"qsfp56-dd-1-1"}, "false")
    assert set(now) == {"1100-1101", "1"}
    assert {"qsfp56-dd-1-1", "qsfp56-dd-1-3", "sfp56-1"} & now["1"][1] == set()
    assert "qsfp56-dd-1-5" in now["1"][1]


def test_ports_that_admit_only_tagged_frames_bring_no_vlan(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    filtering(client)
    done(client, f"{PORT}/set", "=numbers=ether1", "=frame-types=admit-only-vlan-tagged")
    done(client, f"{BRIDGE}/set", "=numbers=bridge", "=frame-types=admit-only-vlan-tagged")
    assert table(client)["1"] == (set(), set(), "true")
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=7", "=untagged=ether1")
    assert table(client)["7"] == (set(), {"ether1"}, "false")


def test_a_disabled_row_or_port_carries_nothing(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    filtering(client)
    row = done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=7", "=tagged=ether1")
    assert table(client)["7"][0] == {"ether1"}
    done(client, f"{PORT}/disable", "=numbers=ether1")
    assert table(client)["7"][0] == set()
    done(client, f"{PORT}/enable", "=numbers=ether1")
    done(client, f"{VLAN}/disable", f"=numbers={row}")
    assert table(client)["7"][0] == set()
    done(client, f"{VLAN}/remove", f"=numbers={row}")
    assert "7" not in table(client)


def test_lists_follow_renamed_and_removed_interfaces(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{BRIDGE}/add", "=name=second")
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=7", "=tagged=ether1,second,*3,ether1")
    assert one(client, VLAN)["tagged"] == "ether1,second,ether2"
    done(client, "/interface/ethernet/set", "=numbers=ether1", "=name=management")
    done(client, f"{BRIDGE}/remove", "=numbers=second")
    assert one(client, VLAN)["tagged"] == "management,*25,ether2"
    done(client, f"{BRIDGE}/set", "=numbers=bridge", "=name=fabric")
    assert one(client, VLAN)["bridge"] == "fabric"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["=vlan-ids=7"], "missing =bridge="),
        (["=bridge=bridge"], "missing =vlan-ids="),
        (["=bridge=none", "=vlan-ids=7"], "input does not match any value of bridge"),
        (["=bridge=bridge", "=vlan-ids=7", "=tagged=ether1,none"], "input does not match any value of tagged"),
        (["=bridge=bridge", "=vlan-ids=0"], "value of vlan-ids out of range (1..4094)"),
        (["=bridge=bridge", "=vlan-ids=9-7"], "value of vlan-ids out of range (1..4094)"),
        (["=bridge=bridge", "=vlan-ids=all"], "invalid value for argument vlan-ids"),
        (["=bridge=bridge", "=vlan-ids=7", "=current-tagged=ether1"], "unknown parameter current-tagged"),
        (
            ["=bridge=bridge", "=vlan-ids=7", "=tagged=ether1", "=untagged=ether1"],
            "failure: interface can not be in tagged and untagged at the same time",
        ),
        (["=bridge=bridge", "=vlan-ids=4000-4094"], "failure: vlan already added"),
    ],
)
def test_refusals(shared: Crs812Process, raw: RawClient, words: list[str], message: str) -> None:
    if not rows(raw, VLAN):
        done(raw, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=4094")
    assert trap(raw.ask(f"{VLAN}/add", *words)) == message
    assert len(rows(raw, VLAN)) == 1


def test_a_dynamic_row_cannot_be_written(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    filtering(client)
    dynamic = one(client, VLAN)
    assert dynamic["dynamic"] == "true"
    assert trap(client.ask(f"{VLAN}/set", f"=.id={dynamic['.id']}", "=tagged=ether1")) == "no such item"


def test_the_table_survives_a_restart_and_unrolls(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1100", "=tagged=ether1")
    client.ask("/safe-mode/take")
    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1101", "=tagged=ether1")
    filtering(client)
    client.ask("/safe-mode/unroll")
    assert set(table(client)) == {"1100"}
    crs812.stop()
    crs812.start()
    assert one(connect(crs812), VLAN)["tagged"] == "ether1"


def test_a_node_is_reported_what_its_leg_carries(crs812: Crs812Process, connect: Connect) -> None:
    """Its own kernel then drops what the switch's port would."""
    client = connect(crs812)
    configure(client, crs812)

    def reported(number: int) -> object:
        (link,) = node(crs812, number)["links"].values()
        return link["vlans"]

    done(client, f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1100,1101", "=tagged=qsfp56-dd-1-1,qsfp56-dd-1-3")
    assert reported(1) is None
    filtering(client)
    assert reported(1) == {"pvid": 1, "tagged": [1100, 1101], "untagged": [1]}
    assert reported(3) == {"pvid": 1, "tagged": [], "untagged": [1]}
    done(client, f"{PORT}/set", "=numbers=qsfp56-dd-1-3", "=frame-types=admit-only-vlan-tagged")
    assert reported(2) == {"pvid": None, "tagged": [1100, 1101], "untagged": []}
    done(client, f"{BRIDGE}/set", "=numbers=bridge", "=vlan-filtering=no")
    assert reported(1) is reported(2) is None
