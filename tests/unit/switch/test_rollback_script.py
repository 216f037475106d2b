"""The inverse of a plan, run by a small console of its own on tables in memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.routeros.diff import DesiredRow, RowChange, diff, surplus
from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET, IDENTITY, MENUS, OLDEST, SERVICE, USER, Menu
from core.routeros.rollback_script import quote, script
from core.routeros.values import ValueKind
from switch.plan import plan
from tests.unit.switch import routeros_console as console
from tests.unit.switch.racks import EVERY_KEY, MakeRack, make_rack
from tests.unit.switch.rows import LANES, Tables, carry_out, factory, meaning, reading, row

TREE = json.loads((Path(__file__).parent / "schema.json").read_text())
SOURCES = (TREE["tree"], TREE["manual"])
TREE = TREE["tree"] | TREE["manual"]


def known(path: str, verb: str) -> set[str]:
    """The arguments of a command by either source: virtual units lack what only the chip has."""
    return {word for source in SOURCES for word in source.get(path, {}).get(verb, ())}


def undone(tables: Tables, changes: tuple[RowChange, ...]) -> Tables:
    """The tables after the changes and their inverse."""
    after = copy.deepcopy(tables)
    carry_out(after, changes)
    console.run(script(changes), after)
    return after


def test_everything_a_run_can_write_is_undone(rack: MakeRack) -> None:
    before = factory()
    changes = plan(*rack(**EVERY_KEY), reading(before)).changes
    assert len({change.menu.path for change in changes}) > 20
    assert meaning(undone(before, changes)) == meaning(before)


KEYS = st.sets(st.sampled_from(sorted(EVERY_KEY)))
LANE = st.sampled_from([f"{cage}-{lane}" for cage, lanes in LANES.items() if lanes > 1 for lane in range(1, lanes + 1)])
ODD = st.sampled_from([("disabled", "true"), ("speed", "200G-baseCR4"), ("mtu", "1600"), ("l2mtu", "9570")])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(KEYS, st.sampled_from(("none", "pause", "roce")), st.lists(st.tuples(LANE, ODD), max_size=8), TEXT)
def test_any_plan_is_undone(
    tmp_path_factory: pytest.TempPathFactory,
    keys: set[str],
    lossless: str,
    cells: list[tuple[str, tuple[str, str]]],
    name: str,
) -> None:
    folder: Path = tmp_path_factory.mktemp("rack")
    chosen = {key: EVERY_KEY[key] for key in keys - {"reader"} | {"tls"}}
    rack, switch = make_rack(folder, **{**chosen, "lossless": lossless})
    before = factory()
    for lane, (field, value) in cells:
        row(before, lane)[field] = value
    before["/system/identity"][0]["name"] = name
    before["/system/script"].append({".id": "*1", "name": "mine", "source": f':put "{name}"\n:put 2', "policy": "read"})
    changes = plan(rack, switch, reading(before)).changes
    after = undone(before, changes)
    assert meaning(after) == meaning(before)


@pytest.mark.parametrize("done", range(6))
def test_what_was_written_in_part_is_undone_too(rack: MakeRack, done: int) -> None:
    before = factory()
    changes = plan(*rack(**EVERY_KEY), reading(before)).changes
    after = copy.deepcopy(before)
    carry_out(after, changes[: done * len(changes) // 5])
    console.run(script(changes), after)
    assert meaning(after) == meaning(before)


def test_where_nothing_is_to_be_undone_no_lane_is_touched(rack: MakeRack) -> None:
    """Every write to a lane restarts its cage, even one that changes nothing."""
    before = factory()
    changes = plan(*rack(**EVERY_KEY), reading(before)).changes
    lanes = [command for command in console.parse(script(changes)) if command.path == ETHERNET.path]
    assert lanes
    for command in lanes:
        assert command.test
        assert not [entry for entry in before[ETHERNET.path] if command.test(entry)], command


def test_a_cage_is_put_back_in_one_write(rack: MakeRack) -> None:
    changes = plan(*rack(), reading(factory())).changes
    writes = [command for command in console.parse(script(changes)) if command.path == ETHERNET.path]
    assert [command.verb for command in writes] == ["set"] * 3, "two cages, then all sizes"


def test_the_last_change_is_undone_first(rack: MakeRack) -> None:
    changes = plan(*rack(**EVERY_KEY), reading(factory())).changes
    commands = console.parse(script(changes))
    assert (commands[0].path, commands[0].arguments) == ("/interface/bridge", {"vlan-filtering": "no"})
    assert commands[-1].path == "/interface/ethernet"


def test_rows_are_found_by_name_not_by_id(rack: MakeRack) -> None:
    """An .id is not the same after a row was removed and put back."""
    changes = plan(*rack(**EVERY_KEY), reading(factory())).changes
    assert "*" not in script(changes)


def test_an_added_row_is_removed_and_a_removed_one_put_back() -> None:
    ports = factory()["/interface/bridge/port"][:1]
    (added,) = diff(BRIDGE_PORT, [DesiredRow(("x",), {"bridge": "bridge"})], ports)
    (removed,) = surplus(BRIDGE_PORT, [], ports)
    assert script([added]).count('/interface/bridge/port remove [find where interface="x" and dynamic!=yes]') == 1
    text = script([removed])
    assert ':if ([:len [/interface/bridge/port find where interface="ether1" and dynamic!=yes]] = 0) do={' in text
    assert "hw-offload" not in text, "what cannot be written is not sent"
    tables: Tables = {"/interface/bridge/port": [dict(ports[0])]}
    console.run(text, tables)
    assert len(tables["/interface/bridge/port"]) == 1, "never twice"


def test_the_speed_that_a_factory_lane_does_not_print_is_left(rack: MakeRack) -> None:
    changes = plan(*rack(), reading(factory())).changes
    for command in console.parse(script(changes)):
        assert "speed" not in command.arguments
    (change,) = diff(ETHERNET, [DesiredRow(("ether1",), {"speed": "1G-baseX"})], factory()["/interface/ethernet"][:1])
    assert script([change]) == "", "nothing that could be written back"


def test_a_speed_that_was_printed_is_put_back(rack: MakeRack) -> None:
    before = factory()
    row(before, "qsfp56-dd-1-1")["speed"] = "400G-baseCR8"
    after = undone(before, plan(*rack(), reading(before)).changes)
    assert row(after, "qsfp56-dd-1-1")["speed"] == "400G-baseCR8"


@pytest.mark.parametrize("lossless", ["none", "pause", "roce"])
def test_every_word_of_the_script_is_in_the_command_tree(rack: MakeRack, lossless: str) -> None:
    """Whether RouterOS looks at words when it reads a script is not known; one it refuses would stop all of it."""
    changes = plan(*rack(**{**EVERY_KEY, "lossless": lossless}), reading(factory())).changes
    commands = console.parse(script(changes))
    assert {command.verb for command in commands} <= {"set", "add", "remove"}
    for command in commands:
        assert set(command.arguments) <= known(command.path, command.verb), command


def test_flags_are_written_in_the_words_that_are_documented() -> None:
    """They are read as true and false; the console's own words are yes and no."""
    (change,) = diff(BRIDGE, [DesiredRow(("bridge",), {"vlan-filtering": "yes"})], factory()["/interface/bridge"])
    assert 'vlan-filtering="no"' in script([change])
    (gone,) = surplus(USER, [], [{".id": "*1", "name": "eve", "group": "full", "disabled": "true"}])
    assert 'disabled="yes"' in script([gone])


@pytest.mark.parametrize("menu", [menu for menu in MENUS if not menu.single], ids=lambda menu: menu.path)
def test_nothing_is_unset_in_a_menu_without_that_command(menu: Menu) -> None:
    """One line that cannot be read, and none of the script runs."""
    sample = {ValueKind.FLAG: "yes", ValueKind.COUNT: "7", ValueKind.RATE: "7G", ValueKind.DURATION: "7s"}
    reported = {
        name: reported for name, reported in menu.fields.items() if not reported.read_only and name not in menu.key
    }
    wanted = {name: sample.get(field.kind, "x") for name, field in reported.items() if not field.secret}
    key = tuple("7" if menu.fields[name].kind is ValueKind.COUNT else "x" for name in menu.key if name in menu.fields)
    rows = [{".id": "*1", **dict(zip(menu.key, key, strict=True))}] if key else []
    for command in console.parse(script(diff(menu, [DesiredRow(key, wanted)], rows) if key else ())):
        assert command.verb in TREE[menu.path], command


def test_numbers_and_flags_are_compared_as_what_they_are() -> None:
    """RouterOS compares types, too: 1500 is not the text 1500."""
    wanted = DesiredRow(("ether1",), {"mtu": "9000", "disabled": "yes"})
    text = script(diff(ETHERNET, [wanted], factory()["/interface/ethernet"][:1]))
    assert '[find where default-name="ether1" and (disabled!=no or mtu!=1500)]' in text


def test_the_words_of_a_release() -> None:
    changes = diff(SERVICE, [DesiredRow(("ssh",), {"address": "10.0.0.0/8"})], [{".id": "*1", "name": "ssh"}])
    for release, word in ((OLDEST, "address"), ((7, 24, 0, 0), "available-from")):
        (command,) = console.parse(script(changes, release))
        assert command.arguments == {word: ""}


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_arrives_in_a_script(text: str) -> None:
    tables: Tables = {"/system/identity": [{"name": "now"}]}
    (change,) = diff(IDENTITY, [DesiredRow((), {"name": "new"})], [{"name": text}])
    if text != "new":
        console.run(script([change]), tables)
        assert tables["/system/identity"] == [{"name": text}]
    assert "\n" not in quote(text)


def test_an_odd_name_cannot_end_the_quotes() -> None:
    assert quote('a"; /user remove $x\\') == r'"a\"; /user remove \$x\\"'


def test_a_removed_user_comes_back_disabled() -> None:
    """Its password cannot come back, and an account without one would let everybody in."""
    row = {".id": "*3", "name": "mallory", "group": "full", "disabled": "false"}
    change = RowChange(USER, ("mallory",), "*3", (), removes=True, before=row)
    assert '/user add name="mallory" group="full" disabled="yes"' in script([change])


@given(st.binary(min_size=1, max_size=12).filter(lambda raw: b"\x00" not in raw))
def test_any_bytes_arrive_in_a_script(raw: bytes) -> None:
    """WinBox writes the code page of its machine: cp1252 on most, which is not UTF-8."""
    text = raw.decode("utf-8", "surrogateescape")
    tables: Tables = {"/system/identity": [{"name": "now"}]}
    (change,) = diff(IDENTITY, [DesiredRow((), {"name": "\x00new"})], [{"name": text}])
    source = script([change])
    source.encode()  # it can be sent
    console.run(source, tables)
    assert tables["/system/identity"][0]["name"].encode("utf-8", "surrogateescape") == raw


def test_a_byte_that_is_not_an_utf_8_is_written_by_its_number() -> None:
    name = "Köln".encode("cp1252").decode("utf-8", "surrogateescape")
    assert quote(name) == r'"K\F6ln"'
    (change,) = diff(IDENTITY, [DesiredRow((), {"name": "crs812"})], [{"name": name}])
    assert str(change) == r"~ /system/identity: name K\xf6ln -> crs812"


def test_a_connection_is_not_taken_for_its_service(rack: MakeRack) -> None:
    """From 7.23 on it is a row of the same name, which cannot be set."""
    tables = factory()
    before = copy.deepcopy(tables["/ip/service"])
    assert [entry["name"] for entry in before if entry["dynamic"] == "true"] == ["api-ssl"]
    changes = plan(*rack(management=["10.77.0.0/24"]), reading(tables)).changes
    commands = [command for command in console.parse(script(changes)) if command.path == SERVICE.path]
    assert commands
    for command in commands:
        assert command.test
        assert not [entry for entry in before if entry["dynamic"] == "true" and command.test(entry)], command
