"""Links follow configuration and cables: restarts, settling, wires and what the nodes are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, attributes, trap
from tests.emulator.test_tables import one
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

ETHERNET = "/interface/ethernet"
MASTERS = [f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)]
GOOD = ["=auto-negotiation=no", "=speed=100G-baseCR2", "=fec-mode=fec91"]


def configure(client: RawClient, switch: Crs812Process) -> None:
    """Split both cages as 4x100G and wait for all eight legs."""
    assert client.ask(f"{ETHERNET}/set", f"=numbers={','.join(MASTERS)}", *GOOD) == [["!done"]]
    until(lambda: up(switch) == set(MASTERS))


def up(switch: Crs812Process) -> set[str]:
    return {name for name, status in switch.links().items() if status == "link-ok"} - {"ether1"}


def downs(switch: Crs812Process) -> dict[str, int]:
    return {name: link["downs"] for name, link in switch.state()["links"].items()}


def bounced(switch: Crs812Process, before: dict[str, int]) -> set[str]:
    return {name for name, count in downs(switch).items() if count > before[name]}


def node(switch: Crs812Process, number: int) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((switch.folder / f"spark{number}.json").read_text())
    return state


def monitor(client: RawClient, name: str) -> dict[str, str]:
    (answer, _done) = client.ask(f"{ETHERNET}/monitor", f"=numbers={name}", "=once=")
    return attributes(answer)


def test_a_new_switch_has_no_fabric_link(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    until(lambda: "initializing" not in crs812.links().values())
    assert up(crs812) == set()
    assert crs812.state()["attached"] == {}
    seen = monitor(client, "qsfp56-dd-1-1")
    assert (seen["status"], seen["auto-negotiation"], seen["sfp-module-present"]) == (
        "no-link",
        "failed",
        "true",
    )
    assert "auto-initialization failed" in json.dumps(client.ask("/log/print", "?topics=interface,warning"))


def test_a_monitor_by_item_number(crs812: Crs812Process, connect: Connect) -> None:
    """The sentences of mktxp 2.1 (PyPI): it counts the rows of a print, and asks for each by its number."""
    client = connect(crs812)
    rows = [attributes(row) for row in client.ask(f"{ETHERNET}/print", "=.proplist=name")[:-1]]
    assert len(rows) == 34
    for number in (0, 2, 33):
        assert monitor(client, str(number))["name"] == rows[number]["name"]
    both = client.ask(f"{ETHERNET}/monitor", "=numbers=1,ether1", "=once=", "=.proplist=name")
    assert [attributes(row).get("name") for row in both] == ["ether2", "ether1", None]
    assert trap(client.ask(f"{ETHERNET}/monitor", "=numbers=34", "=once=")) == "no such item"


def test_a_split_cage_links_all_its_legs(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    seen = monitor(client, "qsfp56-dd-1-3")
    wanted = {"status": "link-ok", "auto-negotiation": "disabled", "rate": "100Gbps", "full-duplex": "true"}
    assert seen == seen | wanted | {"fec": "fec91", "eeprom-checksum": "good"}
    companion = monitor(client, "qsfp56-dd-1-4")
    assert companion["status"] == "no-link"
    assert "rate" not in companion
    assert companion["sfp-vendor-serial"] == seen["sfp-vendor-serial"]
    assert one(client, ETHERNET, "?name=qsfp56-dd-1-3")["running"] == "true"
    assert monitor(client, "sfp56-1")["sfp-module-present"] == "false"
    taps = {f"n{number}{half}" for number in range(1, 9) for half in "ab"}
    assert crs812.state()["attached"] == dict.fromkeys(taps, 1584)


def test_a_restarted_cage_initializes_until_it_has_settled(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch()
    client = connect(switch)
    configure(client, switch)
    switch.control({"op": "settle", "seconds": 3600})
    client.ask(f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-8", "=disabled=no")
    assert up(switch) == set(MASTERS[4:])
    assert monitor(client, "qsfp56-dd-1-1")["status"] == "initializing"
    assert one(client, ETHERNET, "?name=qsfp56-dd-1-1")["running"] == "false"
    assert set(switch.state()["attached"]) == {f"n{number}{half}" for number in range(5, 9) for half in "ab"}


@pytest.mark.parametrize(
    ("words", "cages"),
    [
        (["=numbers=qsfp56-dd-1-2", "=disabled=no"], {1}),
        (["=numbers=qsfp56-dd-1-1", *GOOD], {1}),
        (["=numbers=qsfp56-dd-2-7", "=mtu=1400"], {2}),
        (["=numbers=qsfp56-dd-1-1,qsfp56-dd-2-1", "=tx-flow-control=on"], {1, 2}),
        (["=numbers=qsfp56-1-1", "=l2mtu=9500"], {1, 2}),
        (["=numbers=qsfp56-1-1", "=l2mtu=1584"], set()),
        (["=numbers=qsfp56-1-1", "=disabled=yes"], set()),
        (["=numbers=qsfp56-dd-1-1", "=comment=to spark1"], set()),
        (["=numbers=qsfp56-dd-1-1", "=name=spark1"], set()),
    ],
)
def test_what_a_write_takes_down(crs812: Crs812Process, connect: Connect, words: list[str], cages: set[int]) -> None:
    client = connect(crs812)
    configure(client, crs812)
    before = downs(crs812)
    assert client.ask(f"{ETHERNET}/set", *words) == [["!done"]]
    assert bounced(crs812, before) - {"ether1"} == {name for name in MASTERS if int(name[10]) in cages}
    until(lambda: up(crs812) == set(MASTERS))


def test_a_changed_l2mtu_bounces_every_port_and_a_bridge_write_none(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    before = downs(crs812)
    client.ask("/interface/bridge/port/set", "=numbers=*5", "=comment=x")
    client.ask("/interface/bridge/set", "=numbers=bridge", "=protocol-mode=none")
    assert bounced(crs812, before) == set()
    client.ask(f"{ETHERNET}/set", "=numbers=sfp56-8", "=l2mtu=9000")
    assert bounced(crs812, before) == {"ether1", *MASTERS}


def test_an_unrolled_lane_comes_back(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    client.ask("/safe-mode/take")
    client.ask(f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-3", "=fec-mode=off")
    until(lambda: up(crs812) == set(MASTERS) - {"qsfp56-dd-1-3"})
    client.ask("/safe-mode/unroll")
    until(lambda: up(crs812) == set(MASTERS))


@pytest.mark.parametrize(
    "words",
    [
        [f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-1", "=auto-negotiation=yes"],
        [f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-1", "=fec-mode=off"],
        [f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-1", "=speed=100G-baseCR4"],
        [f"{ETHERNET}/disable", "=numbers=qsfp56-dd-1-2"],
        [f"{ETHERNET}/disable", "=numbers=qsfp56-dd-1-1"],
    ],
)
def test_a_broken_leg_has_no_link_and_no_wire(crs812: Crs812Process, connect: Connect, words: list[str]) -> None:
    client = connect(crs812)
    configure(client, crs812)
    client.ask(*words)
    until(lambda: "initializing" not in crs812.links().values())
    assert monitor(client, "qsfp56-dd-1-1")["status"] == "no-link"
    assert not {"n1a", "n1b"} & set(crs812.state()["attached"])
    assert node(crs812, 1)["links"]["1"]["carrier"] is False


@pytest.mark.parametrize(
    ("commands", "attached"),
    [
        ([["/interface/bridge/port/disable", "=numbers=qsfp56-dd-1-1"]], False),
        ([["/interface/bridge/port/remove", "=numbers=qsfp56-dd-1-1"]], False),
        ([["/interface/bridge/port/remove", "=numbers=qsfp56-dd-1-2"]], True),
        ([["/interface/bridge/disable", "=numbers=bridge"]], False),
        ([["/interface/bridge/port/set", "=numbers=qsfp56-dd-1-1", "=hw=no"]], True),
        (
            [
                ["/interface/bridge/add", "=name=second"],
                ["/interface/bridge/port/set", "=numbers=qsfp56-dd-1-1", "=bridge=second"],
            ],
            False,
        ),
    ],
)
def test_only_ports_of_the_offloaded_bridge_are_wired(
    crs812: Crs812Process, connect: Connect, commands: list[list[str]], attached: bool
) -> None:
    client = connect(crs812)
    configure(client, crs812)
    for words in commands:
        assert client.ask(*words)[-1][0] == "!done"
    assert ({"n1a", "n1b"} <= set(crs812.state()["attached"])) is attached
    assert up(crs812) == set(MASTERS)


def test_wires_carry_the_masters_l2mtu(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    client.ask(f"{ETHERNET}/set", "=numbers=qsfp56-dd-1-1", "=l2mtu=9500")
    until(lambda: up(crs812) == set(MASTERS))
    attached = crs812.state()["attached"]
    assert (attached["n1a"], attached["n1b"], attached["n2a"]) == (9500, 9500, 1584)


def test_nodes_are_reported_and_the_rest_of_their_state_is_kept(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch()
    path: Path = switch.folder / "spark2.json"
    path.write_text(json.dumps({"gpu": "GB10", "links": {"0": {"carrier": False}}}))
    client = connect(switch)
    configure(client, switch)
    leg = {"carrier": True, "speed": 100000, "lanes": 2, "fec": "RS", "leg": "qsfp56-dd-1-3", "vlans": None}
    assert node(switch, 2) == {"gpu": "GB10", "links": {"0": {"carrier": False}, "1": leg}}
    client.ask(f"{ETHERNET}/disable", "=numbers=qsfp56-dd-1-3")
    dark = leg | {"carrier": False, "speed": None, "fec": "None"}
    assert node(switch, 2)["links"]["1"] == dark


def test_cables_can_be_pulled_plugged_and_swapped(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    where = {"op": "cable", "cage": "qsfp56-dd-1", "lane": 1}
    crs812.control(where | {"do": "pull"})
    until(lambda: up(crs812) == set(MASTERS) - {"qsfp56-dd-1-1"})
    assert node(crs812, 1)["links"]["1"]["carrier"] is False
    crs812.control(where | {"do": "plug"})
    until(lambda: up(crs812) == set(MASTERS))
    crs812.control(where | {"do": "swap", "to": {"cage": "qsfp56-dd-2", "lane": 7}})
    until(lambda: up(crs812) == set(MASTERS))
    assert node(crs812, 1)["links"]["1"]["leg"] == "qsfp56-dd-2-7"
    assert node(crs812, 8)["links"]["1"]["leg"] == "qsfp56-dd-1-1"


def test_a_deaf_node_has_no_carrier_though_the_switch_says_link_ok(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    configure(client, crs812)
    crs812.control({"op": "cable", "do": "deafen", "cage": "qsfp56-dd-2", "lane": 3})
    until(lambda: up(crs812) == set(MASTERS))
    assert monitor(client, "qsfp56-dd-2-3")["rate"] == "100Gbps"
    assert node(crs812, 6)["links"]["1"]["carrier"] is False
    assert "n6a" not in crs812.state()["attached"]
