"""Public configurations of other owners' switches: what `adopt` writes of each, and what a run of that file would do.

tests/cases/adopted has what a source shows, set on an emulated switch with the cages that are nearest to the source's,
and what is expected. A file describes what is there, so a run of it changes nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import ConfigError, Rack
from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET, MENUS
from core.routeros.reading import SwitchReading, read_switch
from sparkrack.discovery.switch_facts import SwitchFacts
from sparkrack.discovery.yaml_writer import text
from switch.plan import plan
from tests.emulator.in_process_device import Bench
from tests.unit.discovery.worlds import World, answers, mac
from tests.unit.model.racks import loaded

FOLDER = Path(__file__).parents[2] / "cases/adopted"
CASES: Mapping[str, dict[str, Any]] = {
    file.stem: YAML(typ="safe", pure=True).load(file.read_text()) for file in sorted(FOLDER.glob("*.yaml"))
}
READY = [name for name, case in CASES.items() if "adopted" in case]
ADVICE = ("remove", "delete")


def configured(folder: Path, case: Mapping[str, Any]) -> Bench:
    """An emulated switch that is set as a source shows it."""
    kind = {key: case[key] for key in ("model", "version") if key in case}
    made = Bench(folder, **kind)
    for name, fields in case.get("interfaces", {}).items():
        row = made.one(ETHERNET.path, f"?default-name={name}")
        made.ask(f"{ETHERNET.path}/set", f"=.id={row['.id']}", *words(fields))
    wanted = case.get("bridges")
    if wanted:
        ids = ",".join(row[".id"] for row in made.rows(BRIDGE_PORT.path))
        made.ask(f"{BRIDGE_PORT.path}/remove", f"=.id={ids}")
        made.ask(f"{BRIDGE.path}/remove", f"=.id={made.one(BRIDGE.path)['.id']}")
    for bond in case.get("bonds", ()):
        made.ask("/interface/bonding/add", *words(bond))
    names = {row["default-name"]: row["name"] for row in made.rows(ETHERNET.path)}
    for bridge, ports in (wanted or {}).items():
        size = case.get("bridge_mtu", {}).get(bridge)
        made.ask(f"{BRIDGE.path}/add", f"=name={bridge}", *([f"=mtu={size}"] if size else []))
        for port in ports:
            made.ask(f"{BRIDGE_PORT.path}/add", f"=bridge={bridge}", f"=interface={names.get(port, port)}")
    for one in case.get("rows", ()):
        for command, fields in sentences(made, one):
            made.ask(command, *fields)
    return made


def words(fields: Mapping[str, str]) -> list[str]:
    return [f"={name}={value}" for name, value in fields.items()]


def sentences(made: Bench, one: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    if "add" in one:
        yield f"{one['menu']}/add", words(one["add"])
    elif "where" not in one:
        yield f"{one['menu']}/set", words(one["set"])
    else:
        rows = [row for row in made.rows(one["menu"]) if one["where"].items() <= row.items()]
        assert rows, f"{one['menu']} of the emulator has no row with {one['where']}"
        yield from ((f"{one['menu']}/set", [f"=.id={row['.id']}", *words(one["set"])]) for row in rows)


def reading_of(made: Bench) -> SwitchReading:
    return read_switch(lambda sentence: [dict(row) for row in made.ask(*sentence).rows], MENUS, MENUS)


def declared(case: Mapping[str, Any]) -> Rack:
    """The rack of a case's nodes, for what the nodes themselves answer: nothing else of its switch is used."""
    cages = case.get("adopted", {}).get("cages", {"qsfp56-dd-1": {"split": "2x200G"}})
    splits = {cage: {"split": one["split"]} for cage, one in cages.items()}
    nodes = {
        f"spark{number}": {"address": f"10.77.0.{10 + number}", "vendor": "asus", "ports": {1: f"crs812/{leg}"}}
        for number, leg in enumerate(case["nodes"], 1)
    }
    model = case.get("model", "CRS812-8DS-2DQ-2DDQ")
    switch = {"address": "10.77.0.2", "tls": {"sha256": "0" * 64}, "user": "ops", "password": {"env": "CRS"}}
    document = {
        "rack": "found",
        "access": {"user": "ops", "key": "~/.ssh/id_ed25519", "known_hosts": "known_hosts"},
        "nodes": nodes,
        "switches": {"crs812": {**switch, "model": model, "cages": splits}},
        "fabric": {"mtu": case.get("mtu", 1500), "subnets": ["192.168.100.0/24", "192.168.101.0/24"]},
    }
    paper = io.StringIO()
    YAML(typ="safe", pure=True).dump(document, paper)
    return loaded(paper.getvalue())


def found(case: Mapping[str, Any], reading: SwitchReading) -> World:
    """The nodes and the switch of a case as `adopt` reads them."""
    world = answers(declared(case))
    ports = {
        port: leg
        for node in world.rack.nodes
        for port in world.rack.cabling.ports_of(node)
        if (leg := world.rack.cabling.leg_of(port))
    }
    hosts = {mac(half): leg.interface for port, leg in ports.items() for half in port.halves}
    monitor = {name: {"rate": case["rate"]} for name in case["nodes"]} if "rate" in case else {}
    world.seen["crs812"] = SwitchFacts("crs812", reading, hosts, monitor=monitor)
    return world


@pytest.mark.parametrize("name", CASES)
def test_each_case_names_its_source(name: str) -> None:
    assert {"source", "unit", "assumed", "nodes"} <= CASES[name].keys()


@pytest.mark.parametrize("name", READY)
def test_the_keys_of_the_file_equal_the_live_values(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    world = found(case, reading_of(configured(tmp_path, case)))
    sheet = world.sheet()
    assert [str(gap) for gap in sheet.missing] == []
    written = sheet.data["switches"]["crs812"]
    assert {key: written.get(key) for key in case["adopted"]} == case["adopted"]
    gaps = [str(gap) for gap in sheet.unrepresentable if gap.place[0] == "switches"]
    expected = [f"switches.crs812.{gap}" for gap in case.get("gaps", ())]
    assert len(gaps) == len(expected), gaps
    assert all(any(gap.startswith(begin) for gap in gaps) for begin in expected), gaps


@pytest.mark.parametrize("name", READY)
def test_a_run_of_the_file_changes_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    reading = reading_of(configured(tmp_path, case))
    rack = loaded(text(found(case, reading).sheet()))
    todo = plan(rack, rack.switches["crs812"], reading)
    assert [f"{batch.title}: {batch.effect}" for batch in todo.batches] == []
    faults = [fault for fault in todo.faults if "has lost its hardware offload" not in fault]
    assert len(faults) == len(case.get("faults", ())), faults
    assert all(fault.startswith(begin) for fault, begin in zip(faults, case.get("faults", ()), strict=True)), faults
    assert not [fault for fault in todo.faults if any(word in fault for word in ADVICE)]


@pytest.mark.parametrize("name", [name for name in CASES if name not in READY])
def test_what_has_no_key_is_a_gap_and_the_file_is_not_ready(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    sheet = found(case, reading_of(configured(tmp_path, case))).sheet()
    assert any(case["missing"] in str(gap) for gap in sheet.missing)
    gaps = [str(gap) for gap in sheet.unrepresentable]
    assert all(any(gap.startswith(f"switches.crs812.{begin}") for gap in gaps) for begin in case["gaps"]), gaps
    with pytest.raises(ConfigError):
        loaded(text(sheet))
