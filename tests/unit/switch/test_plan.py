from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.routeros.change_plan import ChangeBatch, ChangePlan
from core.routeros.diff import DesiredRow, diff, surplus
from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import COMMUNITY, Sentence
from core.routeros.sentences import writes
from switch.cages import describe
from switch.differences import DifferenceKind, switch_differences
from switch.plan import plan
from tests.unit.switch.racks import EVERY_KEY, UNCABLED, MakeRack, make_rack
from tests.unit.switch.rows import LANES, QOS, Tables, carry_out, factory, reading, row


def sentences(batch: ChangeBatch) -> tuple[Sentence, ...]:
    return tuple(write.sentence for write in writes(batch.changes))


def planned(rack: MakeRack, tables: Tables, **switch: object) -> ChangePlan:
    return plan(*rack(**switch), reading(tables))


def declared(rack: MakeRack, **switch: object) -> Tables:
    tables = factory()
    carry_out(tables, planned(rack, tables, **switch).changes)
    return tables


def test_from_the_factory(rack: MakeRack) -> None:
    assert planned(rack, factory()).effects == (
        "l2mtu of 16 lanes: bounces all 34 ports",
        (
            "cage qsfp56-dd-1, auto-negotiated -> 4x100G copper: "
            "restarts cage qsfp56-dd-1 (spark1, spark2, spark3, spark4)"
        ),
        "cage qsfp56-dd-2, auto-negotiated -> 4x100G optic: restarts cage qsfp56-dd-2 (spark5)",
        "identity: disturbs nothing",
    )


def test_lossless_traffic_halts_all_ports_when_queues_or_buffers_change(rack: MakeRack) -> None:
    assert (
        "traffic classes: halts traffic of all ports for a moment" in planned(rack, factory(), lossless="roce").effects
    )
    tables = declared(rack, lossless="roce")
    (row,) = [row for row in tables[f"{QOS}/profile"] if row.get("name") == "roce"]
    row["dscp"] = "27"
    assert planned(rack, tables, lossless="roce").effects == ("traffic classes: disturbs nothing",)


def test_from_the_factory_in_four_sentences(rack: MakeRack) -> None:
    first, second, *_ = planned(rack, factory()).batches
    (sizes,) = sentences(first)
    assert sizes[0] == "/interface/ethernet/set"
    assert sizes[1].count("*") == 16
    assert sizes[2:] == ("=l2mtu=9500", "=mtu=9000")
    assert sentences(second) == (
        (
            "/interface/ethernet/set",
            "=.id=*4,*6,*8,*A",
            "=auto-negotiation=no",
            "=speed=100G-baseCR2",
            "=fec-mode=fec91",
        ),
    )


def test_a_second_run_has_nothing_to_do(rack: MakeRack) -> None:
    assert planned(rack, declared(rack)).batches == ()


def test_one_lane_wrong_restarts_its_cage_and_no_other(rack: MakeRack) -> None:
    tables = declared(rack)
    row(tables, "qsfp56-dd-1-3")["fec-mode"] = "off"
    found = planned(rack, tables)
    assert found.effects == (
        ("cage qsfp56-dd-1, lanes of 4x100G copper: restarts cage qsfp56-dd-1 (spark1, spark2, spark3, spark4)"),
    )
    assert found.lines[1] == "  ~ /interface/ethernet qsfp56-dd-1-3: fec-mode off -> fec91"


def test_a_disabled_companion_is_enabled(rack: MakeRack) -> None:
    tables = declared(rack)
    row(tables, "qsfp56-dd-2-4")["disabled"] = "true"
    (change,) = planned(rack, tables).changes
    assert (change.row, change.values) == ("qsfp56-dd-2-4", (("disabled", "no"),))


def test_what_a_companion_ignores_is_left_alone(rack: MakeRack) -> None:
    tables = declared(rack)
    row(tables, "qsfp56-dd-2-4").update({"speed": "25G-baseCR", "auto-negotiation": "false", "fec-mode": "off"})
    assert planned(rack, tables).batches == ()


def test_cages_that_are_not_declared_are_left_alone(rack: MakeRack) -> None:
    changes = planned(rack, factory()).changes
    rows = {change.row for change in changes if change.menu.path == "/interface/ethernet"}
    assert rows == {f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in range(1, 9)}


def test_only_the_larger_frame_size_moves_all_ports_and_waits_for_all_links(rack: MakeRack) -> None:
    tables = declared(rack)
    (batch,) = planned(rack, tables, l2mtu=9570).batches
    assert batch.effect == "bounces all 34 ports"
    assert {str(link.port) for link in batch.settles} == {f"spark{number}/1" for number in range(1, 6)}
    assert sentences(batch)[0][2:] == ("=l2mtu=9570",)


def test_links_of_a_cage_yet_to_be_written_are_not_waited_for(rack: MakeRack) -> None:
    tables = declared(rack)
    row(tables, "qsfp56-dd-1-1")["speed"] = "200G-baseCR4"
    row(tables, "qsfp56-dd-2-8")["l2mtu"] = "1584"
    sizes, cage = planned(rack, tables).batches
    assert [str(link.port) for link in sizes.settles] == ["spark5/1"]
    assert len(cage.settles) == 4


def test_mtu_goes_with_l2mtu_when_both_move(rack: MakeRack) -> None:
    tables = declared(rack)
    (batch,) = planned(rack, tables, mtu=1500, l2mtu=1600).batches
    assert sentences(batch)[0][2:] == ("=l2mtu=1600", "=mtu=1500")


def test_mtu_alone_restarts_its_cages_only(rack: MakeRack) -> None:
    batches = planned(rack, declared(rack), mtu=8000).batches
    assert [batch.effect.split(" (")[0] for batch in batches] == [
        "restarts cage qsfp56-dd-1",
        "restarts cage qsfp56-dd-2",
    ]


def test_masters_join_the_bridge_by_the_name_they_have_now(rack: MakeRack) -> None:
    tables = declared(rack)
    row(tables, "qsfp56-dd-1-3")["name"] = "rack-b"
    row(tables, "qsfp56-dd-1-3", f"{QOS}/port", "name")["name"] = "rack-b"
    ports = tables["/interface/bridge/port"]
    next(port for port in ports if port["interface"] == "qsfp56-dd-1-3")["interface"] = "rack-b"
    next(port for port in ports if port["interface"] == "qsfp56-dd-1-1")["disabled"] = "true"
    ports.remove(next(port for port in ports if port["interface"] == "qsfp56-dd-2-1"))
    ports.remove(next(port for port in ports if port["interface"] == "qsfp56-dd-2-2"))
    (batch,) = planned(rack, tables).batches
    assert batch.title == "ports of bridge bridge"
    assert batch.effect == "interrupts qsfp56-dd-1-1, qsfp56-dd-2-1 (spark1, spark5)"
    assert [change.values for change in batch.changes] == [
        (("disabled", "no"),),
        (("interface", "qsfp56-dd-2-1"), ("bridge", "bridge")),
    ]


def test_a_dynamic_bridge_port_is_not_ours(rack: MakeRack) -> None:
    tables = declared(rack)
    tables["/interface/bridge/port"].append({"interface": "vpn1", "bridge": "bridge", "dynamic": "true"})
    assert planned(rack, tables).batches == ()


def test_an_undeclared_identity_is_left_alone(rack: MakeRack) -> None:
    assert all(batch.title != "identity" for batch in planned(rack, factory(), identity=None).batches)


def test_no_cages_and_no_identity_is_not_a_plan(rack: MakeRack) -> None:
    assert planned(rack, factory(), nodes=UNCABLED, cages={}, identity=None).batches == ()


def test_every_reason_to_refuse_is_reported(rack: MakeRack) -> None:
    tables = factory()
    tables["/system/resource"][0]["version"] = "7.20.8"
    tables["/system/package"] = []
    with pytest.raises(RefusedError) as refused:
        planned(rack, tables)
    assert len(refused.value.reasons) == 2


@pytest.mark.parametrize(
    ("menu", "rows"),
    [
        ("/interface/ethernet", []),
        ("/interface/ethernet", [{".id": "*1", "default-name": "ether1"}]),
        ("/system/identity", []),
        ("/system/resource", []),
        ("/system/routerboard", [{}, {}]),
        ("/interface/bridge/port", [{".id": "*1", "interface": "x", "dynamic": "perhaps"}]),
        ("/interface/bridge/port", [{"interface": "x", "bridge": "bridge"}]),
        ("/system/package", [{"name": "routeros"}]),
    ],
)
def test_answers_no_switch_gives_are_unreadable(rack: MakeRack, menu: str, rows: list[dict[str, str]]) -> None:
    tables = factory() | {menu: rows}
    with pytest.raises(UnreadableError, match=menu):
        planned(rack, tables)


CELLS = st.tuples(
    st.sampled_from([f"{cage}-{lane}" for cage, lanes in LANES.items() if lanes > 1 for lane in range(1, lanes + 1)]),
    st.sampled_from(
        [
            ("disabled", "true"),
            ("auto-negotiation", "false"),
            ("speed", "100G-baseCR2"),
            ("speed", "200G-baseCR4"),
            ("fec-mode", "fec74"),
            ("mtu", "9000"),
            ("l2mtu", "9500"),
            ("l2mtu", "9570"),
        ]
    ),
)


@settings(max_examples=60)
@given(st.lists(CELLS, max_size=12), st.sampled_from(("1x400G", "2x200G", "4x100G")))
def test_whatever_it_was_the_plan_leads_to_the_declaration(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, tuple[str, str]]], split: str
) -> None:
    folder = tmp_path_factory.mktemp("rack")
    rack, switch = make_rack(folder, UNCABLED, cages={"qsfp56-dd-1": {"split": split}})
    tables = factory()
    for name, (field, value) in cells:
        row(tables, name)[field] = value
    for batch in plan(rack, switch, reading(tables)).batches:
        carry_out(tables, batch.changes)
        if batch.title.startswith("l2mtu"):
            assert all(int(lane["mtu"]) <= int(lane["l2mtu"]) for lane in lanes_of_cage(tables))
    assert plan(rack, switch, reading(tables)).batches == ()
    assert describe("qsfp56-dd-1", reading(tables).ethernet) == f"{split} copper"


def lanes_of_cage(tables: Tables) -> list[dict[str, str]]:
    return [row(tables, f"qsfp56-dd-1-{lane}") for lane in range(1, 9)]


def test_a_community_string_is_never_shown(rack: MakeRack) -> None:
    """Below SNMP version 3 it is a password."""
    tables = factory()
    tables["/snmp"][0]["trap-community"] = "canary-v2c"
    found = planned(rack, tables, snmp=EVERY_KEY["snmp"])
    text = "\n".join((*found.lines, *found.notes))
    assert "canary-v2c" not in text
    assert "trap-community (hidden) -> (hidden)" in text


def test_nor_is_the_name_of_a_community_without_security() -> None:
    row = {".id": "*1", "name": "canary-v2c", "security": "none"}
    (gone,) = surplus(COMMUNITY, [], [row])
    assert str(gone) == "- /snmp/community (hidden)"
    assert "canary" not in writes((gone,))[0].title
    (back,) = diff(COMMUNITY, [DesiredRow(("canary-v2c",), {"security": "none"})], [])
    assert "canary" not in str(back)


COMPANIONS = [f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (2, 4, 6, 8)]
PORT = "/interface/bridge/port"


def made_by_hand(rack: MakeRack, **switch: object) -> Tables:
    """A switch whose legs are as declared, and whose companions have the sizes of the factory."""
    tables = declared(rack, **switch)
    for name in COMPANIONS:
        row(tables, name).update({"mtu": "1500", "l2mtu": "1584"})
    return tables


def test_the_l2mtu_of_a_companion_counts_as_an_enabled_port_of_the_bridge(rack: MakeRack) -> None:
    tables = made_by_hand(rack)
    (batch,) = planned(rack, tables).batches
    assert batch.effect == "bounces all 34 ports"
    assert {change.row for change in batch.changes} == set(COMPANIONS)


@pytest.mark.parametrize("how", ["not a port", "a disabled port", "a port of another bridge"])
def test_sizes_of_companions_without_effect_are_not_compared(rack: MakeRack, how: str) -> None:
    tables = made_by_hand(rack)
    for name in COMPANIONS:
        member = row(tables, name, PORT, "interface")
        if how == "not a port":
            tables[PORT].remove(member)
        else:
            member.update({"disabled": "true"} if how == "a disabled port" else {"bridge": "other", "hw": "false"})
    assert planned(rack, tables).batches == ()


def test_the_mtu_of_a_companion_restarts_nothing(rack: MakeRack) -> None:
    tables = declared(rack)
    for name in COMPANIONS:
        row(tables, name)["mtu"] = "1500"
    assert planned(rack, tables).batches == ()


def test_a_companion_that_is_disabled_costs_its_leg_lanes_and_is_enabled(rack: MakeRack) -> None:
    tables = made_by_hand(rack)
    tables[PORT] = [port for port in tables[PORT] if port["interface"] not in COMPANIONS]
    row(tables, "qsfp56-dd-1-2")["disabled"] = "true"
    (batch,) = planned(rack, tables).batches
    assert [str(change) for change in batch.changes] == [
        "~ /interface/ethernet qsfp56-dd-1-2: disabled true -> no",
    ]


def test_sizes_of_companions_are_written_along_with_a_bounce_of_all_ports(rack: MakeRack) -> None:
    tables = made_by_hand(rack)
    tables[PORT] = [port for port in tables[PORT] if port["interface"] not in COMPANIONS]
    row(tables, "qsfp56-dd-1-1")["l2mtu"] = "1584"
    row(tables, "qsfp56-dd-1-1")["mtu"] = "1500"
    (batch,) = planned(rack, tables).batches
    assert {change.row for change in batch.changes} == {"qsfp56-dd-1-1", *COMPANIONS}
    carry_out(tables, batch.changes)
    assert planned(rack, tables).batches == ()
    assert row(tables, "qsfp56-dd-2-8")["l2mtu"] == "9500"


@pytest.mark.parametrize(("l2mtu", "along"), [("9500", True), ("1584", False)])
def test_a_restart_of_a_cage_takes_the_mtu_of_its_companions_along_where_it_fits(
    rack: MakeRack, l2mtu: str, along: bool
) -> None:
    tables = declared(rack)
    tables[PORT] = [port for port in tables[PORT] if port["interface"] not in COMPANIONS]
    for name in COMPANIONS:
        row(tables, name).update({"mtu": "1500", "l2mtu": l2mtu})
    row(tables, "qsfp56-dd-1-1")["fec-mode"] = "off"
    (batch,) = planned(rack, tables).batches
    changed = {change.row for change in batch.changes}
    assert changed == {"qsfp56-dd-1-1", *(COMPANIONS[:4] if along else ())}
    assert not any(field.name == "l2mtu" for change in batch.changes for field in change.fields)


def test_a_lane_that_no_leg_takes_is_disabled_only_along_with_a_restart_while_it_negotiates(rack: MakeRack) -> None:
    cages = {"qsfp56-dd-1": {"split": "1x100G"}}
    switch = {"nodes": {"spark1": "crs812/qsfp56-dd-1-1"}, "cages": cages}
    tables = declared(rack, **switch)
    row(tables, "qsfp56-dd-1-5")["disabled"] = "false"
    assert planned(rack, tables, **switch).batches == ()
    row(tables, "qsfp56-dd-1-5").update({"auto-negotiation": "false", "speed": "100G-baseCR4"})
    (batch,) = planned(rack, tables, **switch).batches
    assert [str(change) for change in batch.changes] == ["~ /interface/ethernet qsfp56-dd-1-5: disabled false -> yes"]


def test_a_cage_that_negotiates_is_as_declared_and_is_not_forced(rack: MakeRack) -> None:
    cages = {"qsfp56-dd-1": {"split": "2x200G", "speed": "negotiated"}}
    switch = {"nodes": {"spark1": "crs812/qsfp56-dd-1-1"}, "cages": cages, "mtu": 1500, "l2mtu": 1584, "identity": None}
    tables = factory()
    assert planned(rack, tables, **switch).batches == ()
    for name in ("qsfp56-dd-1-1", "qsfp56-dd-1-5"):
        row(tables, name).update({"auto-negotiation": "false", "speed": "200G-baseCR4"})
    (batch,) = planned(rack, tables, **switch).batches
    assert batch.title == "cage qsfp56-dd-1, 2x200G copper -> auto-negotiated"
    carry_out(tables, batch.changes)
    assert planned(rack, tables, **switch).batches == ()


def bonded(tables: Tables, *slaves: str, bridge: str | None = "bridge") -> None:
    """Make a bond of some interfaces; `bridge`: the one that it is a port of."""
    tables["/interface/bonding"].append({".id": "*B0", "name": "isl", "slaves": ",".join(slaves), "disabled": "false"})
    tables[PORT] = [port for port in tables[PORT] if port["interface"] not in slaves]
    if bridge:
        member = {"bridge": bridge, "disabled": "false", "hw": "true", "hw-offload": "true", "dynamic": "false"}
        tables[PORT].append({".id": "*B1", "interface": "isl", **member})


def test_slaves_are_ports_of_the_bridge_through_their_bond(rack: MakeRack) -> None:
    tables = declared(rack)
    bonded(tables, "qsfp56-dd-2-1", "qsfp56-dd-2-3")
    assert planned(rack, tables).batches == ()
    assert planned(rack, tables).faults == ()


def test_a_bond_outside_of_the_bridge_is_added_and_its_slaves_are_not(rack: MakeRack) -> None:
    tables = declared(rack)
    bonded(tables, "qsfp56-dd-2-1", "qsfp56-dd-2-3", bridge=None)
    (batch,) = planned(rack, tables).batches
    assert [change.row for change in batch.changes] == ["isl"]


def test_a_vlan_is_tagged_on_the_bond_and_not_on_its_slaves(rack: MakeRack) -> None:
    tables = declared(rack, vlans=[1100, 1101])
    bonded(tables, "qsfp56-dd-2-1", "qsfp56-dd-2-3")
    changes = planned(rack, tables, vlans=[1100, 1101]).changes
    tagged = {str(dict(change.values)["tagged"]) for change in changes}
    assert len(tagged) == 1
    assert "isl" in tagged.pop().split(",")
    assert not any("qsfp56-dd-2-1" in str(dict(change.values)["tagged"]).split(",") for change in changes)


@pytest.mark.parametrize("purged", [[], ["bridge-ports"]])
def test_a_bond_in_the_bridge_is_not_purged(rack: MakeRack, purged: list[str]) -> None:
    tables = declared(rack)
    bonded(tables, "sfp56-1", "sfp56-2")
    assert planned(rack, tables, purge=purged).batches == ()


@pytest.mark.parametrize(
    ("table", "field"), [("/interface/bridge", "mlag-peer-port"), ("/interface/bonding", "mlag-id")]
)
def test_a_switch_with_mlag_is_refused(rack: MakeRack, table: str, field: str) -> None:
    tables = declared(rack)
    bonded(tables, "sfp56-1", "sfp56-2")
    tables[table][0][field] = "isl"
    with pytest.raises(RefusedError, match="MLAG"):
        planned(rack, tables)


@pytest.mark.parametrize(
    ("forced", "line"),
    [
        ((1, 5), "cage qsfp56-dd-1 is 2x200G copper, wanted auto-negotiated"),
        ((1,), "leg crs812/qsfp56-dd-1-1: it is forced to 200G-baseCR4, wanted negotiated"),
    ],
)
def test_legs_that_are_forced_against_the_declaration_are_named(
    rack: MakeRack, forced: tuple[int, ...], line: str
) -> None:
    cages = {"qsfp56-dd-1": {"split": "2x200G", "speed": "negotiated"}}
    made, switch = rack({"spark1": "crs812/qsfp56-dd-1-1"}, cages=cages, mtu=1500, l2mtu=1584, identity=None)
    tables = factory()
    for lane in forced:
        row(tables, f"qsfp56-dd-1-{lane}").update({"auto-negotiation": "false", "speed": "200G-baseCR4"})
    found = switch_differences(switch, reading(tables), plan(made, switch, reading(tables)))
    assert [one.text for one in found if one.sort is DifferenceKind.DIFFERS] == [line]
