"""Every menu, command and field of the emulator is one of RouterOS' own command tree, and no other is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator import schema
from lab.routeros_emulator.errors import TrapError
from lab.routeros_emulator.menu import EmulatedMenu, spell_id
from lab.routeros_emulator.menus import MENUS
from tests.emulator.in_process_device import Bench

#: Words of the API itself; a console and so its command tree has others for them.
API_VERBS = {"getall"}
TREE_VERSION = (7, 23)
WRITABLE = [menu for menu in MENUS if {"add", "set"} & (menu.verbs | set(menu.actions))]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def test_the_tree_says_where_it_is_from() -> None:
    text = (Path(schema.__file__).parent / "schema.json").read_text()
    assert '"provenance"' in text
    assert "RouterOS 7.23" in text


@pytest.mark.parametrize("menu", MENUS, ids=lambda menu: menu.path or "/")
def test_every_path_and_command_is_in_the_tree(menu: EmulatedMenu) -> None:
    commands = schema.tree()[menu.path]
    assert (menu.verbs | set(menu.actions)) - API_VERBS - commands.keys() == set()


@pytest.mark.parametrize("menu", WRITABLE, ids=lambda menu: menu.path)
def test_every_field_is_an_argument_in_the_tree(menu: EmulatedMenu) -> None:
    for verb in {"add", "set"} & menu.verbs:
        arguments = set(schema.tree()[menu.path][verb])
        fields = {item.spelling(TREE_VERSION) for item in menu.fields if not item.fixed} - {None}
        assert fields - arguments == set(), f"{menu.path}/{verb}"


@pytest.mark.parametrize("menu", WRITABLE, ids=lambda menu: menu.path)
def test_what_is_not_in_the_tree_is_refused(bench: Bench, menu: EmulatedMenu) -> None:
    rows = list(bench.device.store.rows(menu.path)) if menu.rows is None else []
    for verb in {"add", "set"} & menu.verbs:
        if verb == "set" and not rows:
            continue
        which = [f"=.id={spell_id(rows[0].id)}"] if verb == "set" and not menu.singleton else []
        words = [f"{menu.path}/{verb}", "=sparkle=yes", *which]
        with pytest.raises(TrapError) as raised:
            bench.ask(*words)
        assert raised.value.message == "unknown parameter sparkle"
    with pytest.raises(TrapError, match="no such command"):
        bench.ask(f"{menu.path}/sparkle")


def test_a_path_that_is_not_in_the_tree_is_refused(bench: Bench) -> None:
    for path in ("/interface/fibre", "/system/sparkle", "/ip"):
        with pytest.raises(TrapError, match="no such command prefix"):
            bench.ask(f"{path}/print")
