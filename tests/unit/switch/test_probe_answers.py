"""What a probe answers to each question about a switch, from documents in which only that answer differs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET, PFC, PROFILE, QOS_PORT, QUEUE, SETTINGS
from switch.accept_record import _list_console_children
from switch.probe_answers import NOT_ASKED, QUESTIONS, probe_answers
from tests.unit.switch.rows import factory

QOS = (SETTINGS, PROFILE, QUEUE, PFC, QOS_PORT)


def document(**lanes: dict[str, str]) -> dict[str, Any]:
    """The document of a unit from the factory, some rows of its ports otherwise (`_` for `-` in their names)."""
    menus: dict[str, list[dict[str, str]]] = {
        menu.path: factory()[menu.path] for menu in (ETHERNET, BRIDGE, BRIDGE_PORT, *QOS)
    }
    for name, fields in lanes.items():
        row = next(row for row in menus[ETHERNET.path] if row["default-name"] == name.replace("_", "-"))
        row |= fields
    return {"version": "7.23.8", "menus": menus, "monitor": [], "refused": {}, "lacking": []}


def answered(number: int, document: dict[str, Any]) -> tuple[str, list[Any]]:
    entry = probe_answers(document)[number - 1]
    assert entry["question"].startswith(f"{number} ")
    return entry["answer"], entry["evidence"]


def forced(speed: str, **more: str) -> dict[str, str]:
    return {"auto-negotiation": "false", "speed": speed, **more}


def test_every_question_has_its_number_and_an_answer() -> None:
    assert [entry["question"] for entry in probe_answers(document())] == [text for text, _ in QUESTIONS]
    assert [text.split()[0] for text, _ in QUESTIONS] == [str(number) for number in range(1, 10)]


@pytest.mark.parametrize(
    ("lanes", "illegal"),
    [
        ({}, []),
        ({"qsfp56_dd_1_1": forced("200G-baseCR4")}, []),
        ({"qsfp56_dd_1_2": forced("200G-baseCR4")}, ["qsfp56-dd-1-2"]),
        ({"qsfp56_dd_1_2": {"speed": "200G-baseCR4"}}, []),  # it negotiates, so its speed is not in use
        ({"qsfp56_dd_1_2": {"auto-negotiation": "yes", "speed": "200G-baseCR4"}}, []),
        ({"qsfp56_dd_1_1": forced("7G-base")}, []),
    ],
)
def test_a_pair_of_lane_and_speed_that_no_split_has_is_found(
    lanes: dict[str, dict[str, str]], illegal: list[str]
) -> None:
    answer, evidence = answered(1, document(**lanes))
    assert [lane["default-name"] for lane in evidence] == illegal
    assert answer == (
        "such a pair is set, so it was accepted; the evidence shows what the lane does"
        if illegal
        else "no such pair is set; whether one would be refused needs a write, not asked"
    )


def test_a_lane_is_shown_with_what_is_set_and_what_the_monitor_prints() -> None:
    made = document(qsfp56_dd_1_2=forced("200G-baseCR4", name="mine", running="false", comment="private"))
    made["monitor"] = [
        {"name": "other", "status": "link-ok"},
        {"name": "mine", "status": "no-link", "rate": "1G", "full-duplex": "true", "fec": "fec91", "sfp-type": "x"},
    ]
    assert answered(1, made)[1] == [
        {
            "default-name": "qsfp56-dd-1-2",
            "disabled": "false",
            "auto-negotiation": "false",
            "speed": "200G-baseCR4",
            "fec-mode": "auto",
            "running": "false",
            "monitor status": "no-link",
            "monitor rate": "1G",
            "monitor full-duplex": "true",
            "monitor fec": "fec91",
        }
    ]


def test_companions_are_the_lanes_of_a_leg_but_its_first() -> None:
    lanes = {f"qsfp56_dd_1_{number}": forced("200G-baseCR4", running="false") for number in (1, 5)}
    off = {f"qsfp56_dd_1_{number}": forced("200G-baseCR4", running="true") for number in (2, 3, 4, 6, 7, 8)}
    made = document(**lanes, **off)
    made["monitor"] = [
        {"name": "qsfp56-dd-1-2", "status": "no-link", "rate": "200Gbps"},
        {"name": "qsfp56-dd-1-1", "status": "link-ok", "rate": "1G"},
    ]
    answer, evidence = answered(2, made)
    assert [lane["default-name"] for lane in evidence] == [f"qsfp56-dd-1-{number}" for number in (2, 3, 4, 6, 7, 8)]
    assert answer == "status (not printed), no-link; rate (not printed), 200Gbps; running true"
    assert answered(2, document()) == ("no cage is split into legs of several lanes", [])


def test_a_cage_that_lacks_a_lane_has_no_companions() -> None:
    made = document(**{f"qsfp56_dd_1_{number}": forced("200G-baseCR4") for number in range(1, 9)})
    assert answered(2, made)[1]
    made["menus"][ETHERNET.path] = [row for row in made["menus"][ETHERNET.path] if row["name"] != "qsfp56-dd-1-8"]
    assert answered(2, made) == ("no cage is split into legs of several lanes", [])


def test_rates_and_sizes_are_shown_as_they_are_printed() -> None:
    made = document()
    assert answered(3, made)[0] == "no queue has a rate; the rest as in the evidence"
    made["menus"][QOS_PORT.path][0] |= {"egress-rate-queue3": "5G", "egress-rate-queue1": "10.0Gbps"}
    made["menus"]["/interface"] = [{"max-l2mtu": "9570"}, {"max-l2mtu": "9570"}]
    made["monitor"] = [{"name": "ether1", "rate": "1Gbps", "status": "x"}]
    assert answered(3, made) == (
        "as in the evidence",
        [{"egress-rate-queueN": ["10.0Gbps", "5G"]}, {"max-l2mtu": ["9570"]}, {"monitor rate": ["1Gbps"]}],
    )


def test_the_fec_of_legs_of_100g_is_shown() -> None:
    assert answered(4, document()) == ("no leg runs 100G-baseCR2", [])
    made = document(qsfp56_dd_1_1=forced("100G-baseCR2"), qsfp56_dd_1_3=forced("100G-baseCR2"))
    made["monitor"] = [{"name": "qsfp56-dd-1-1", "fec": "fec91"}]
    answer, evidence = answered(4, made)
    assert [lane["default-name"] for lane in evidence] == ["qsfp56-dd-1-1", "qsfp56-dd-1-3"]
    assert answer == (
        "the switch shows (not printed), fec91; what is on the wire, and what the adapter needs, the node shows"
    )


def test_the_ids_of_all_ports_are_shown() -> None:
    answer, (ids,) = answered(5, document(ether1={".id": "*77"}))
    assert answer == "as in the evidence"
    assert (ids["ether1"], len(ids)) == ("*77", len(factory()[ETHERNET.path]))
    assert list(ids) == sorted(ids)


def test_members_are_listed_by_their_bridge() -> None:
    made = document()
    made["menus"][BRIDGE_PORT.path] = [
        {"interface": "ether1", "bridge": "bridge"},
        {"interface": "ether2", "bridge": "x"},
    ]
    since = "; what they were from the factory, only a factory-new unit shows"
    assert answered(6, made) == (f"now: bridge{since}", [{"bridge": ["ether1"], "x": ["ether2"]}])
    made["menus"][BRIDGE.path] = []
    assert answered(6, made)[0] == f"now: no bridge{since}"


@pytest.mark.parametrize(
    ("refused", "lacking", "whole"),
    [
        ({}, [], True),
        ({}, ["/system/x: y"], True),
        ({"/system/x": "no such command"}, [], True),
        ({PFC.path: "no such command"}, [], False),
        ({}, ["/interface/ethernet/switch/qos/port: pfc"], False),
    ],
)
def test_what_a_release_lacks_of_qos_is_shown(refused: dict[str, str], lacking: list[str], whole: bool) -> None:
    made = document() | {"refused": refused, "lacking": lacking}
    answer, evidence = answered(7, made)
    if whole:
        assert answer == "7.23.8 has all that we use of it"
        assert evidence == [{menu.path: len(made["menus"][menu.path]) for menu in QOS}]
    else:
        assert answer == "7.23.8 does not have all of it"
        assert evidence == [refused, lacking]


def test_what_only_a_write_would_show_is_not_asked() -> None:
    assert NOT_ASKED == "needs a write, not asked"
    assert answered(8, document()) == (NOT_ASKED, [])
    assert answered(9, document()) == (NOT_ASKED, [])
    answer, evidence = answered(9, document(ether2={"disabled": "yes"}, ether1={"disabled": "true"}))
    assert answer == "needs a write, not asked; lanes that are disabled now are in the evidence"
    assert [lane["default-name"] for lane in evidence] == ["ether1", "ether2"]


def test_a_menu_that_was_refused_is_empty() -> None:
    made = document() | {"menus": {}, "refused": {menu.path: "no" for menu in QOS}}
    assert [answered(number, made)[0] for number in (1, 2, 3, 4)] == [
        "no such pair is set; whether one would be refused needs a write, not asked",
        "no cage is split into legs of several lanes",
        "no queue has a rate; the rest as in the evidence",
        "no leg runs 100G-baseCR2",
    ]


def test_the_children_of_a_command_are_the_rows_that_are_children_and_have_a_name() -> None:
    rows = [{"type": "child", "name": "add"}, {"type": "self", "name": "interface"}, {"type": "child"}]
    client = SimpleNamespace(talk=lambda *_sentence: rows)
    assert list(_list_console_children(client, "/interface")) == ["add"]
