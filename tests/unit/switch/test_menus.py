"""Our menus against the command tree of RouterOS: every path and argument that can be sent exists there.

schema.json holds what this needs of the tree, and says where it was taken from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.routeros.menus import MENUS, OLDEST, SERVICE, Menu, Release, Sentence
from core.routeros.session import SwitchConnection
from core.routeros.values import ValueKind
from switch.executor import execute
from switch.target_state import DeclaredTarget
from switch.transaction import Transaction
from tests import generated
from tests.unit.switch import routeros_console as console
from tests.unit.switch.in_memory_switch import Device
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.rows import asking
from tests.unit.switch.test_backup import keeper

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "schema.json").read_text())
API = {".id": "numbers", ".proplist": None}
"""Names of the API itself: an id stands for what the console calls numbers, a list of fields is not an argument."""

RELEASES: dict[str, Release] = {"7.23": OLDEST, "7.24": (7, 24, 0, 0)}


def arguments(release: str, path: str, command: str) -> set[str] | None:
    """What a command of a release takes; None if there is no such command."""
    tables = [SCHEMA[part].get(path, {}) for part in ("tree", "manual")]
    if not any(command in table for table in tables):
        return None
    known = {name for table in tables for name in table.get(command, ())}
    changed = SCHEMA["since"].get(release, {}).get(path, {}).get(command, {"added": [], "gone": []})
    return known - set(changed["gone"]) | set(changed["added"])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("menu", MENUS, ids=lambda menu: menu.path)
def test_every_field_we_may_write_is_an_argument(menu: Menu, release: str) -> None:
    assert arguments(release, menu.path, "print") is not None
    commands = {"set"} if menu.single else {"set", "add", "remove"}
    for command in {command for command in commands if not (menu.fixed and command != "set")}:
        taken = arguments(release, menu.path, command)
        ours = {menu.spelled(name, RELEASES[release]) for name, printed in menu.fields.items() if not printed.read_only}
        if command == "set" and menu.path == "/system/scheduler":
            ours -= {"policy"}  # it is reported when a schedule is added, and stays
        if not ours and menu.fixed:
            continue
        assert taken is not None, command
        assert ours <= taken or command == "remove", (command, ours - taken)


@pytest.mark.parametrize("menu", MENUS, ids=lambda menu: menu.path)
def test_menus_say_rightly_what_can_be_done_with_their_rows(menu: Menu) -> None:
    writable = any(not printed.read_only for printed in menu.fields.values())
    if not menu.single and writable:
        assert menu.fixed is (arguments("7.23", menu.path, "add") is None)


def sent(rack: MakeRack, device: Device, keys: dict[str, Any], folder: Path) -> list[Sentence]:
    """Every sentence of a whole run: backup, rollback timer, safe mode, writes, links, disarming."""
    device.tables["/system/script"].append({".id": "*1", "name": "mine", "source": ""})
    device.tables["/interface/bridge/vlan"] = [{".id": "*1", "bridge": "bridge", "vlan-ids": "20"}]
    goal = DeclaredTarget(*rack(**keys))
    before = goal.read(asking(device.tables))
    todo = goal.plan(before)
    line = device.line()

    def keep(line: SwitchConnection) -> None:
        keeper(folder).keep(line, "x")

    transaction = Transaction("sparkrack-undo-20260101T000000-0001", goal, before, todo, keep=keep)
    ended = execute(transaction, line)
    assert ended.done, ended.text
    return [*device.heard, transaction.rollback_timer.fire, ("/safe-mode/unroll",)]


@pytest.fixture(autouse=True)
def _set_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNMP_A", "SNMP_E", "READER_PASSWORD"):
        monkeypatch.setenv(name, "swordfish")


@pytest.mark.parametrize("lossless", ["none", "pause", "roce"])
def test_every_sentence_of_a_run_is_in_the_tree(rack: MakeRack, device: Device, tmp_path: Path, lossless: str) -> None:
    reported = sent(rack, device, {**EVERY_KEY, "lossless": lossless}, tmp_path)
    assert {sentence[0].rpartition("/")[2] for sentence in reported} >= {
        "add",
        "set",
        "remove",
        "monitor",
        "run",
        "save",
    }
    for sentence in reported:
        path, _, command = sentence[0].rpartition("/")
        taken = arguments("7.23", path or "/", command)
        assert taken is not None, sentence
        for word in sentence[1:]:
            if word.startswith("="):
                name, _, value = word[1:].partition("=")
                asked = API.get(name, name)
                assert asked is None or asked in taken, (sentence[0], name)
                _check_words(path, name, value, sentence)


def _check_words(path: str, name: str, value: str, sentence: Sentence) -> None:
    words = SCHEMA["words"].get(path, {}).get(name)
    if words and value:
        assert {part.removeprefix("!") for part in value.split(",")} <= set(words), (sentence[0], name, value)


def test_every_command_of_an_undo_is_in_the_tree(rack: MakeRack, device: Device, tmp_path: Path) -> None:
    """One word the console does not know, and no line of the script runs."""
    (source,) = [
        word.removeprefix("=source=")
        for sentence in sent(rack, device, dict(EVERY_KEY), tmp_path)
        for word in sentence
        if word.startswith("=source=")
    ]
    commands = console.parse(source)
    assert len(commands) > 40
    for command in commands:
        taken = arguments("7.23", command.path, command.verb)
        assert taken is not None, command
        assert set(command.arguments) <= taken, command
        if command.test is not None:
            assert arguments("7.23", command.path, "find") is not None, command
        for name, value in command.arguments.items():
            _check_words(command.path, name, value, (f"{command.path}/{command.verb}",))


def test_no_secret_is_asked_for_and_no_counter() -> None:
    for menu in MENUS:
        asked = menu.sentence()[1].removeprefix("=.proplist=").split(",")
        assert not [name for name, printed in menu.fields.items() if printed.secret and name in asked]
        assert not [name for name in asked if name.startswith(("rx-byte", "tx-byte", "tx-packet", "pfc0"))]


def test_a_field_is_asked_for_by_the_name_it_has() -> None:
    assert "address" in SERVICE.sentence(OLDEST)[1].split("=")[2].split(",")
    assert "available-from" in SERVICE.sentence((7, 24, 1, 0))[1].split("=")[2].split(",")


def test_flags_have_a_default_that_is_a_flag() -> None:
    for menu in MENUS:
        for name, printed in menu.fields.items():
            if printed.kind is ValueKind.FLAG:
                assert printed.default in (None, "yes", "no"), (menu.path, name)


def test_each_menu_has_these_fields_with_these_meanings() -> None:
    """What RouterOS is asked for, and what the absence of a field means: a wrong word there is a change for ever."""
    lines = []
    for menu in MENUS:
        own = {name: value for name, value in vars(menu).items() if name not in ("path", "fields") and value}
        lines.append(" ".join((menu.path, *(f"{name}={value!r}" for name, value in own.items()))))
        for name, field in menu.fields.items():
            said = {key: value for key, value in vars(field).items() if value not in (None, False, OLDEST)}
            lines.append(" ".join((f"  {name}", *(f"{key}={value!s}" for key, value in said.items()))))
    generated.check("tests/cases/switch/menus.md", "menus", "".join(f"{line}\n" for line in lines))
