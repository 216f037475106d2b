"""What public sources show of real units, against this project's parsers, the emulator and the stand-ins.

tests/cases/public has their words, with the source of each file. A difference fails with the id of its claim.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.claims.claims import known_claims
from core.hardware import gb10
from core.hardware.cage_kinds import cage_kind
from core.probes.links import parse_ethtool, parse_ethtool_of_all
from core.routeros.menus import ETHERNET, MENUS
from lab.fake_hardware import BOARDS, state
from lab.routeros_emulator.config import CableTail, EmulatedCable
from lab.routeros_emulator.errors import TrapError
from roles.preflight import parse
from roles.preflight.dmi import older, vendor_of
from switch.cages import describe
from switch.leg_health import LINKED, leg_state
from tests.emulator.in_process_device import Bench
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted, run
from tests.unit.switch.racks import make_rack

FOLDER = Path(__file__).parents[1] / "cases/public"
TOOLS = Path(__file__).parents[2] / "lab/image/rootfs/usr/lib/sparkrack-lab"
SOURCES: Mapping[str, dict[str, Any]] = {
    file.stem: YAML(typ="safe", pure=True).load(file.read_text()) for file in sorted(FOLDER.glob("*.yaml"))
}
SWITCHES = [name for name, source in SOURCES.items() if "sets" in source]
CLAIMS = {claim.id for claim in known_claims()}
MANAGED = {menu.path: menu for menu in MENUS}


def entries(*kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, source in SOURCES.items():
        for kind in kinds:
            yield from ((name, one) for one in source.get(kind, ()))


def answers(*tools: str) -> list[Any]:
    """What tools printed on nodes."""
    found = [(name, one) for name, one in entries("nodes") if one["tool"] in tools]
    assert found
    return [pytest.param(one, id=f"{name}-{number}") for number, (name, one) in enumerate(found)]


def test_each_file_names_its_source_and_its_claims() -> None:
    for name, source in SOURCES.items():
        assert source["source"], name
        assert source["unit"], name
    named = {one["claim"] for _, one in entries("sets", "monitor", "nodes")} | {SOURCES["gb10-dmi"]["claim"]}
    assert {claim for text in named for claim in text.split(", ")} <= CLAIMS


def bench(folder: Path, source: Mapping[str, Any], cage: Mapping[str, str] | None = None) -> Bench:
    """An emulated switch that was set as a source has it, with a cable of a breakout in one cage."""
    cables: tuple[EmulatedCable, ...] = ()
    if cage:
        split = cage_kind(cage["name"]).breakouts[cage["split"]]
        lanes = split.lanes_per_leg
        tails = (
            CableTail.model_validate({"lane": lane, "lanes": lanes, "gbps": split.gbps, "node": "x", "port": 0})
            for lane in split.first_lanes
        )
        cables = (EmulatedCable(cage=cage["name"], tails=tuple(tails)),)
    model = {"model": "CRS804-4DDQ"} if "CRS804" in source["unit"] else {}
    made = Bench(folder, cables=cables, **model)
    for one in source["sets"]:
        for command, words in sentences(made, one):
            try:
                made.ask(command, *(f"={word}" for word in words.split()))
            except TrapError as trap:
                pytest.fail(f"{one['claim']}: the emulator refuses {command} {words}: {trap}")
    return made


def sentences(made: Bench, one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "lanes" in one:
        for lane in one["lanes"]:
            yield f"{ETHERNET.path}/set", f"numbers={lane} {one['words']}"
    elif "add" in one:
        yield f"{one['menu']}/add", one["add"]
    else:
        wanted = one.get("where", {})
        rows = [row for row in made.rows(one["menu"]) if wanted.items() <= row.items()]
        assert rows, f"{one['claim']}: {one['menu']} of the emulator has no row with {wanted}"
        for row in rows:
            yield f"{one['menu']}/set", f"numbers={row['.id']} {one['set']}" if ".id" in row else one["set"]


@pytest.mark.parametrize("name", SWITCHES)
def test_settings_are_accepted_and_understood(name: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    made = bench(tmp_path, source)
    rows = {row["default-name"]: row for row in made.rows(ETHERNET.path)}
    for cage, words in source["cages"].items():
        claim = next(one["claim"] for one in source["sets"] if cage in " ".join(one.get("lanes", ())))
        assert describe(cage, rows) == words, claim
    for one in source["sets"]:
        menu = ETHERNET.path if "lanes" in one else one["menu"]
        assert menu in MANAGED, f"{one['claim']}: {menu}"


@pytest.mark.parametrize(
    ("name", "one"),
    [pytest.param(*found, id=f"{found[0]}-{found[1]['interface']}") for found in entries("monitor")],
)
def test_a_monitor_shows_what_the_emulator_shows(name: str, one: Mapping[str, Any], tmp_path: Path) -> None:
    source, cage, claim, leg = SOURCES[name], one["cage"], one["claim"], one["interface"]
    (tmp_path / "switch").mkdir()
    made = bench(tmp_path / "switch", source, cage)
    if not source["sets"]:
        # A port of that router negotiates its one link; here the first leg of a breakout stands for it.
        speed = "speed=100G-baseCR2", "auto-negotiation=no", "fec-mode=fec91"
        made.ask(f"{ETHERNET.path}/set", f"=numbers={cage['name']}-1", *(f"={word}" for word in speed))
    made.pass_time(60)
    reply = made.ask(f"{ETHERNET.path}/monitor", f"=numbers={leg}", "=once=")
    (row,) = (dict(shown) for shown in reply.rows)
    assert {field: row.get(field) for field in one["row"]} == one["row"], claim
    assert set(one.get("fields", ())) <= row.keys(), claim
    assert not set(one.get("absent", ())) & row.keys(), claim
    if one["row"].get("status") == LINKED:
        rack, _ = make_rack(tmp_path, {"spark1": f"crs812/{leg}"}, cages={cage["name"]: {"split": cage["split"]}})
        ((declared, _port),) = rack.cabling.legs("crs812")
        found = leg_state(declared, "fec91", one["row"])
        assert (found.unknown, found.wrong) == ("", ""), claim


@pytest.mark.parametrize("one", answers("ethtool"))
def test_links(one: Mapping[str, Any]) -> None:
    reports = parse_ethtool_of_all(one["output"])
    assert {name: report.mbps if report.carrier else "no link" for name, report in reports.items()} == one["parsed"]
    assert all(report.carrier is not None for report in reports.values()), one["claim"]


@pytest.mark.parametrize("one", answers("show-fec"))
def test_fec(one: Mapping[str, Any]) -> None:
    assert parse_ethtool(one["output"]).fec == one["parsed"]["fec"], one["claim"]


@pytest.mark.parametrize("one", answers("lspci"))
def test_pcie_links(one: Mapping[str, Any]) -> None:
    lines = one["output"].splitlines()
    found = parse.links(lines)
    assert {slot: f"{link.speed} {link.width}" for slot, link in found.items()} == one["parsed"], one["claim"]
    mellanox = [line.split()[0] for line in lines if "ConnectX-7" in line]
    assert not mellanox or set(mellanox) == set(gb10.HALVES), one["claim"]


@pytest.mark.parametrize("one", answers("interfaces", "ibdev2netdev"))
def test_names(one: Mapping[str, Any]) -> None:
    assert set(re.findall(r"enp?P?2?p?1s0f\dnp\d", one["output"])) == gb10.INTERFACES, one["claim"]
    names = {gb10.half_device(*half): gb10.half_interface(*half) for half in gb10.HALVES.values()}
    assert not one["parsed"] or one["parsed"] == names, one["claim"]


MAKERS: Mapping[str, dict[str, Any]] = SOURCES["gb10-dmi"]["makers"]
NOT_COMPARED = {("S0QKT09A", "S0QKT0EA"), ("5.36_0.0.3", "5.36_0ACUM04")}
"""Two versions whose letters differ: their order is unknown (claim: preflight.bios)."""


@pytest.mark.parametrize("maker", MAKERS)
def test_makers(maker: str) -> None:
    words = MAKERS[maker]
    assert vendor_of(words["sys_vendor"], words.get("board_vendor", "NVIDIA")) == maker, "preflight.dmi"
    assert BOARDS[maker] == (words["sys_vendor"], words["product_name"]), "preflight.dmi"
    for before, after in zip(words["bios"], words["bios"][1:], strict=False):
        if (before, after) in NOT_COMPARED:
            with pytest.raises(ValueError, match="number"):
                older(before, after)
        else:
            assert older(before, after), "preflight.bios"
            assert not older(after, before), "preflight.bios"


def test_every_stand_in_of_a_maker_has_a_source() -> None:
    assert set(BOARDS) == set(MAKERS)


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[str], str]:
    """Ask the stand-ins of a virtual node with both ports, of which the second has a link at 100G."""
    if not shutil.which("jq"):
        pytest.skip("a node has jq, this machine has not")
    rack = loaded(SWITCH)
    hardware = state(rack, next(iter(rack.nodes.values())))
    hardware["links"] = {
        "0": {"carrier": False, "speed": None, "lanes": 0, "fec": None, "leg": None},
        "1": {"carrier": True, "speed": 100_000, "lanes": 2, "fec": "RS", "leg": None},
    }
    (tmp_path / "hardware.json").write_text(json.dumps(hardware))
    (tmp_path / "bin").mkdir()
    for name, tool in {"ibdev2netdev": "hardware", "lspci": "hardware", "ethtool": "ethtool"}.items():
        text = rooted((TOOLS / tool).read_text(), tmp_path)
        text = text.replace("/lab/hardware.json", f"{tmp_path}/hardware.json").replace("[ ! -O / ] || ", "")
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    for name in gb10.INTERFACES:
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    return lambda command: run(command, tmp_path).stdout


def test_the_stand_ins_print_the_words_of_the_sources(ask: Callable[[str], str]) -> None:
    for _, one in entries("nodes"):
        claim, lines = one["claim"], one["output"].splitlines()
        if one["tool"] == "ibdev2netdev":
            assert sorted(ask("ibdev2netdev").splitlines()) == sorted(lines), claim
        if one["tool"] == "ethtool":
            printed = [ask(f"ethtool {name}") for name in sorted(gb10.INTERFACES)]
            for line in lines:
                # Numbers and the reason in brackets are those of the moment.
                form = re.sub(r"\d+", r"\\d+", re.sub(r" \(.*\)$", "", line))
                assert any(re.search(rf"(?m)^{form}", text) for text in printed), f"{claim}: {line}"
        if one["tool"] == "lspci" and "ConnectX-7" in one["output"]:
            text = ask("lspci -D -vv -d 15b3:")
            assert set(re.findall(r"(?m)^\S+ (.*)$", one["output"].replace("LnkSta:", "\t"))) >= set(
                re.findall(r"(?m)^[0-9a-f]\S+ (.*)$", text)
            ), claim
            if "LnkSta" in one["output"]:
                assert "LnkSta:\tSpeed 32GT/s, Width x4\n" in text, claim
