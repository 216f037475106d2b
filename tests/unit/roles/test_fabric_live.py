"""What `ip -j address` says, and what of it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.fabric.desired import InterfaceState, live, missing, problems
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.roles.cases import sentences

FACTS = Path(__file__).parents[2] / "cases/facts"
RIGHT = (FACTS / "ip-address.switch-node.json").read_text()
FACTORY = (FACTS / "ip-address.factory-node.json").read_text()
RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]
NAMES = ["enp1s0f1np1", "enP2p1s0f1np1"]


def test_a_node_that_is_right() -> None:
    now = live(RIGHT, NAMES)
    assert now["enp1s0f1np1"] == InterfaceState(
        known=True, up=True, mtu=9000, addresses=frozenset({"192.168.100.1/24"})
    )
    assert list(now) == NAMES
    assert sentences(problems(RACK, NODE, now)) == missing(RACK, NODE, now) == []


def test_a_factory_fresh_node() -> None:
    now = live(FACTORY, NAMES)
    assert now["enP2p1s0f1np1"].addresses == {"169.254.7.9/16", "192.168.101.1/24"}
    assert missing(RACK, NODE, now) == []
    assert sentences(problems(RACK, NODE, now)) == [
        "enp1s0f1np1: is down",
        "enp1s0f1np1: mtu 1500 -> 9000",
        "enp1s0f1np1: no address -> 192.168.100.1/24",
        "enP2p1s0f1np1: mtu 1500 -> 9000",
        "enP2p1s0f1np1: 169.254.7.9/16, 192.168.101.1/24 -> 192.168.101.1/24",
    ]


def test_an_interface_that_is_not_there() -> None:
    links = [link for link in json.loads(RIGHT) if link["ifname"] != "enP2p1s0f1np1"]
    now = live(json.dumps(links), NAMES)
    assert missing(RACK, NODE, now) == ["enP2p1s0f1np1"]
    assert sentences(problems(RACK, NODE, now)) == ["enP2p1s0f1np1: is not there"]


def change(name: str, key: str, value: Any) -> list[str]:
    links = json.loads(RIGHT)
    next(link for link in links if link["ifname"] == name)[key] = value
    return sentences(problems(RACK, NODE, live(json.dumps(links), NAMES)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("key", "value", "reported"),
    [
        ("mtu", 8999, "mtu 8999 -> 9000"),
        ("flags", ["BROADCAST", "MULTICAST", "LOWER_UP"], "is down"),
        ("addr_info", [], "no address -> "),
        ("addr_info", [{"family": "inet", "local": "192.168.100.1", "prefixlen": 16}], "192.168.100.1/16 -> "),
        ("addr_info", [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}], "no address -> "),
    ],
)
def test_each_thing_that_may_differ_is_found(name: str, key: str, value: Any, reported: str) -> None:
    (fault,) = change(name, key, value)
    assert fault.startswith(f"{name}: {reported}")


@pytest.mark.parametrize("name", ["lo", "enP7s7", "enp1s0f0np0"])
def test_other_interfaces_are_not_looked_at(name: str) -> None:
    assert change(name, "mtu", 1) == change(name, "addr_info", []) == change(name, "flags", []) == []


@pytest.mark.parametrize(
    "reported",
    [
        "",
        "[",
        RIGHT[:-3],
        RIGHT[: len(RIGHT) // 2],
        "1: lo: <LOOPBACK,UP>",
        "null",
        "5",
        "[1]",
        '[{"ifname": "enp1s0f1np1"}]',
        '[{"ifname": "enp1s0f1np1", "flags": [], "mtu": null, "addr_info": []}]',
        '[{"ifname": "enp1s0f1np1", "flags": [], "mtu": 1, "addr_info": [{"family": "inet"}]}]',
        '[{"ifindex": 1}]',
    ],
)
def test_what_ip_does_not_print_is_no_answer(reported: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        live(reported, NAMES)


@given(st.text(max_size=40))
def test_any_text_is_an_answer_or_none(reported: str) -> None:
    try:
        now = live(reported, NAMES)
    except (ValueError, KeyError, TypeError):
        return
    assert all(not state.known for state in now.values())
