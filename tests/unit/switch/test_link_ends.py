"""What both ends of a leg say, compared; and which node is at the end of which."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.model import Port
from switch.link_ends import (
    LinkEnd,
    disagreement,
    grown_counters,
    mac_locations,
    miscabled,
    node_end,
    node_end_script,
    parse_node_end,
    switch_end,
)
from tests.unit.model.racks import KEPT, SWITCH, loaded
from tests.unit.probe_output import probe_output

RACK = loaded(SWITCH)
LEG, PORT = RACK.cabling.legs("crs812")[0]
HALVES = PORT.halves
SPEED = f"{LEG.gbps * 1000}Mb/s"
RATE = f"{LEG.gbps}Gbps"
UP = {"status": "link-ok", "rate": RATE, "fec": "fec91"}
FEC = "fec91"


def end(half: int = 0, **changed: str | None) -> LinkEnd:
    fields: dict[str, str | None] = {"link": "yes", "speed": SPEED, "fec": "RS", "mac": f"aa:{half}", "why": "x"}
    return LinkEnd(HALVES[half], **{**fields, **changed})  # type: ignore[arg-type]


def output(sections: Mapping[str, str], links: object) -> str:
    return probe_output({"links": json.dumps(links), **sections})


LINKS = [{"ifname": half.interface, "address": f"AA:{half.index}"} for half in HALVES]
FINE = f"Settings for x:\n\tSpeed: {SPEED}\n\tLink detected: yes\nFEC parameters for x:\nActive FEC encoding: RS\n"


def test_an_answer_is_understood() -> None:
    reported = parse_node_end(output({half.interface: FINE for half in HALVES}, LINKS), [PORT])
    assert [(e.mac, e.link, e.speed, e.fec) for e in reported.values()] == [
        ("aa:0", "yes", SPEED, "RS"),
        ("aa:1", "yes", SPEED, "RS"),
    ]


def test_a_half_that_is_not_there() -> None:
    text = "netlink error: no device matches name\n"
    reported = parse_node_end(output({HALVES[0].interface: text}, LINKS[1:]), [PORT])
    assert reported[HALVES[0]] == LinkEnd(HALVES[0], "", None, None, None, text.strip())
    assert reported[HALVES[1]].why == "ethtool prints nothing"
    assert node_end(LEG, reported[HALVES[0]]) == f"ethtool {HALVES[0].interface}: {text.strip()}"


@pytest.mark.parametrize("text", ["", "sudo: a password is required", "[1]", '[{"x": 1}]', "{}x"])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"^`ip -j address show` gives no list"):
        parse_node_end(probe_output({"links": text}), [PORT])


def test_the_question_is_a_shell_script_that_speaks_first() -> None:
    script = node_end_script(RACK, [PORT])
    subprocess.run(["sh", "-n", "-c", script], check=True)
    lines = script.splitlines()
    assert lines.index("wait") < lines.index("c links 'ip -d -j address show'")
    pings = [line.split()[9] for line in lines if line.startswith("ping")]
    ours = {str(a.interface.ip) for a in RACK.addresses if a.half in HALVES}
    assert len(pings) == 2
    assert not ours & set(pings)
    for address, peer in zip([a for a in RACK.addresses if a.half in HALVES], pings, strict=True):
        assert peer in [str(ip) for ip in address.interface.network.hosts()]


def test_a_leg_that_is_well() -> None:
    assert switch_end(LEG, FEC, UP) == ""
    assert node_end(LEG, end()) == ""
    assert disagreement(UP, [end(0), end(1)]) == ""


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, f"status unknown, wanted link-ok; rate unknown, wanted {RATE}; fec unknown, wanted fec91"),
        (UP | {"status": "no-link"}, "status no-link, wanted link-ok"),
        (UP | {"rate": "50Gbps"}, f"rate 50Gbps, wanted {RATE}"),
        (UP | {"rate": "soon"}, f"rate soon, wanted {RATE}"),
        (UP | {"fec": "off"}, "fec off, wanted fec91"),
    ],
)
def test_a_leg_that_is_not_well_on_the_switch(row: dict[str, str], text: str) -> None:
    assert switch_end(LEG, FEC, row) == text


def test_a_rate_has_more_than_one_spelling() -> None:
    assert switch_end(LEG, FEC, UP | {"rate": str(LEG.gbps * 10**9)}) == ""


def test_what_the_switch_chooses_with_auto_is_not_compared() -> None:
    assert switch_end(replace(LEG, gbps=10), "auto", {"status": "link-ok", "rate": "10Gbps"}) == ""


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"link": "no", "speed": "Unknown!"}, f"{HALVES[0].interface} sees no link"),
        ({"speed": "50000Mb/s"}, f"{HALVES[0].interface} runs at 50000Mb/s, wanted {SPEED}"),
        ({"speed": None}, f"{HALVES[0].interface} runs at None, wanted {SPEED}"),
    ],
)
def test_a_leg_that_is_not_well_on_the_node(changed: dict[str, Any], text: str) -> None:
    assert node_end(LEG, replace(end(), **changed)) == text


@pytest.mark.parametrize(
    ("row", "ends", "text"),
    [
        (UP, [end(link="no")], f"the switch reports link-ok, {HALVES[0].interface} sees no link"),
        ({"status": "no-link"}, [end()], f"the switch reports no-link, {HALVES[0].interface} sees a link"),
        (UP, [end(), end(1, speed="1Mb/s")], f"the switch reports {RATE}, {HALVES[1].interface} reports 1Mb/s"),
        (UP, [end(fec="BaseR")], f"the switch reports FEC fec91, {HALVES[0].interface} reports BaseR"),
        (UP | {"fec": "fec74"}, [end(fec="BaseR")], ""),
        (UP | {"fec": "off"}, [end()], f"the switch reports FEC off, {HALVES[0].interface} reports RS"),
        (UP | {"fec": "off"}, [end(fec="Off"), end(1, fec="None")], ""),
        (UP, [end(fec=None)], ""),
        ({"status": "no-link"}, [end(link="no")], ""),
    ],
)
def test_ends_that_do_not_agree(row: dict[str, str], ends: list[LinkEnd], text: str) -> None:
    assert disagreement(row, ends) == text


def test_where_a_port_is() -> None:
    ends, names = [end(0), end(1)], [half.interface for half in HALVES]
    assert mac_locations(ends, {"aa:0": "x", "aa:1": "x"}) == {"x": names}
    assert mac_locations(ends, {"aa:0": "x"}) == {"x": names[:1], "": names[1:]}
    assert mac_locations([replace(ends[0], mac="")], {"aa:0": "x", "": "y"}) == {"": names[:1]}


# Three nodes: spark1 on qsfp56-dd-1-1, spark2 (port 0) on qsfp56-1-3, spark3 on sfp56-3.
THREE = loaded(KEPT)
FIRST, SECOND = (THREE.cabling.leg_of(port) for port in (Port("spark1", 1), Port("spark2", 0)))


def wrong(found: dict[str, list[str]], others: dict[str, dict[str, list[str]] | None]) -> list[str]:
    assert FIRST
    return list(miscabled(THREE, FIRST, Port("spark1", 1), found, lambda port: others[port.node]))


def test_a_port_in_its_place() -> None:
    assert wrong({"qsfp56-dd-1-1": ["a", "b"]}, {}) == []


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"qsfp56-dd-1-1": ["a"]}, "spark2 is on leg crs812/qsfp56-dd-1-1, where spark1 should be"),
        ({"sfp56-3": ["a"]}, "spark2 is on leg crs812/sfp56-3, where spark3 should be"),
        ({"qsfp56-1-3": ["a"]}, "spark2 is on leg crs812/qsfp56-1-3"),
        ({"qsfp56-2-1": ["a"]}, "spark2 is on leg crs812/qsfp56-2-1"),
        ({"": ["a"]}, "spark2 is heard behind no port"),
        (None, "spark2 does not report where it is"),
    ],
)
def test_a_swapped_cable_names_both_ends(other: dict[str, list[str]] | None, text: str) -> None:
    assert wrong({"qsfp56-1-3": ["a", "b"]}, {"spark2": other}) == [
        f"spark1 is on leg crs812/qsfp56-1-3, where spark2 should be; {text}"
    ]


def test_a_port_where_no_one_belongs_and_one_that_is_silent() -> None:
    assert wrong({"qsfp56-2-1": ["a"], "": ["b"]}, {}) == [
        ("spark1 is on leg crs812/qsfp56-2-1, where rack.yaml has no node; it should be on leg crs812/qsfp56-dd-1-1"),
        "spark1 should be on leg crs812/qsfp56-dd-1-1; the switch hears b behind no port",
    ]


def test_counters() -> None:
    assert grown_counters({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 9, "c": 0, "d": 4}) == ["b grew by 7", "c fell by 3"]
    assert grown_counters({"a": 1}, {"a": 1}) == []
