"""The text of a file: what it says is the data, whatever stands in its notes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.model import yaml_reader
from core.model.errors import printable_line
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.yaml_writer import text
from tests.unit.discovery.worlds import world
from tests.unit.model.racks import SWITCH, loaded

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(names, names)
def test_no_word_of_a_machine_changes_what_the_file_says(word: str, note: str) -> None:
    sheet = world(loaded(SWITCH)).sheet()
    sheet.data["switches"]["crs812"]["identity"] = word
    sheet.note(("nodes", "spark1"), note)
    sheet.heads[()] = [note]
    found: Any = yaml_reader.parse(text(sheet)).data
    assert {name: dict(node["ports"]) for name, node in found["nodes"].items()} == {
        "spark1": {1: "crs812/qsfp56-dd-1-1"},
        "spark2": {1: "crs812/qsfp56-dd-1-3"},
    }
    assert found["switches"]["crs812"]["identity"] == printable_line(word)


def test_init_tells_what_else_a_node_has_and_writes_no_value_of_it() -> None:
    sheet = world(loaded(SWITCH)).sheet(live=False)
    line = (
        "spark1: driver 580.159.03, kernel 6.17.0-1021-nvidia, docker: Docker version 29.1.3, build 0123456, swap off"
    )
    assert f"# {line}, management by enP7s7\n" in text(sheet)
    assert not {"driver", "memory", "docker", "images"} & set(sheet.data)


def test_notes_stand_behind_their_lines_and_heads_above() -> None:
    sheet = RackDraft(
        {"rack": "one", "access": {"user": "ops"}, "nodes": {"a": {"ports": {}}}, "fabric": {"mtu": 9000}}
    )
    sheet.add_missing(("nodes", "a", "ports"), "no one tells\nwhere it ends")
    sheet.note(("fabric", "mtu"), "first")
    sheet.note(("fabric", "mtu"), "second")
    written = text(sheet)
    assert "  a: {ports: {}} # NOT FOUND: no one tells\\nwhere it ends\n" in written
    assert "  mtu: 9000 # first; second\n" in written
    assert "\n\n# The fast network." in written
