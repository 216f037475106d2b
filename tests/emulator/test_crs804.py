"""A rack behind a CRS804: planned, applied, applied again, divided again, refused, recognised, recorded and played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from core.hardware.crs804 import CRS804
from core.model import load
from lab.routeros_emulator.config import CableTail, EmulatedCable
from lab.routeros_emulator.ports import CRS804 as EMULATED
from sparkrack.cli.main import sparkrack
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER
from tests.emulator.probe_fixtures import MakeRecorded, probe, probed
from tests.emulator.switch_runs import DEPLOY, INVENTORY, SET, Workdir, unharmed, waits_for
from tests.emulator.transactions import Operator

BOARD = "CRS804-4DDQ"
NODES = {
    **{f"spark{number}": f"qsfp56-dd-1-{lane}" for number, lane in enumerate((1, 3, 5, 7), start=1)},
    **{f"spark{number}": f"qsfp56-dd-4-{lane}" for number, lane in enumerate((1, 5), start=5)},
}
CAGES = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-4": "2x200G"}


def tail(leg: str, node: str) -> CableTail:
    lanes = {"4x100G": 2, "2x200G": 4}[CAGES[leg.rpartition("-")[0]]]
    return CableTail(lane=int(leg.rpartition("-")[2]), lanes=lanes, gbps=50 * lanes, node=node, port=1)


CABLES = tuple(
    EmulatedCable(cage=cage, tails=tuple(tail(leg, node) for node, leg in NODES.items() if leg.startswith(cage)))
    for cage in CAGES
)


@dataclass
class Desk804(Workdir):
    """An operator of six nodes behind a CRS804. `cages` and `nodes` are what the rack file declares."""

    cages: Mapping[str, str] = field(default_factory=lambda: CAGES)
    nodes: Mapping[str, str] = field(default_factory=lambda: NODES)

    def write(self) -> None:
        declared = {
            "address": "127.0.0.1",
            "port": self.emulator.tls_port,
            "tls": {"sha256": self.emulator.fingerprint},
            "user": USER,
            "password": {"env": "CRS812_PASSWORD"},
            "model": "crs804",
            "identity": "crs804",
            "cages": {cage: {"split": split} for cage, split in self.cages.items()},
            **self.switch,
        }
        rack = {
            "rack": "spark6",
            "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
            "nodes": {
                name: {"address": f"10.77.0.{11 + n}", "vendor": "asus", "ports": {1: f"crs804/{leg}"}}
                for n, (name, leg) in enumerate(self.nodes.items())
            },
            "switches": {"crs804": declared},
            "fabric": {"subnets": ["192.168.100.0/24", "192.168.101.0/24"]},
        }
        with (self.folder / "rack.yaml").open("w") as file:
            YAML(typ="safe").dump(rack, file)
        (self.folder / "inventory.py").write_text(INVENTORY)
        (self.folder / "deploy.py").write_text(DEPLOY)

    def check(self) -> str:
        """What `sparkrack check` says of the rack file."""
        self.write()
        return CliRunner().invoke(sparkrack, ["check", "--rack", str(self.folder / "rack.yaml")]).output


@pytest.fixture
def desk804(tmp_path: Path, make_switch: MakeSwitch) -> Desk804:
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk804(folder, make_switch(model=BOARD, cables=CABLES))


def up(workdir: Workdir) -> set[str]:
    """The interfaces of cages that have a link."""
    return {name for name, status in workdir.emulator.links().items() if status == "link-ok" and "dd" in name}


def test_the_emulated_unit_has_the_ports_of_the_model(desk804: Desk804) -> None:
    rows = desk804.emulator.state()["tables"]["/interface/ethernet"]
    lanes = [f"{cage}-{lane}" for cage in CRS804.cages for lane in range(1, 9)]
    assert sorted(row["default-name"] for row in rows) == sorted([*CRS804.management_ports, *lanes])
    assert len({row["mac-address"] for row in rows}) == len(rows) == 34
    assert EMULATED.cages == {cage: kind.name for cage, kind in CRS804.cages.items()}


def test_a_plan_says_what_a_run_would_do_and_writes_nothing(desk804: Desk804) -> None:
    ended = desk804.run("--dry", "--diff")
    assert ended.code == 0, ended.text
    for text in (
        "qsfp56-dd-1, auto-negotiated -> 4x100G copper: restarts cage qsfp56-dd-1 (spark1, spark2, spark3, spark4)",
        "cage qsfp56-dd-4, auto-negotiated -> 2x200G copper: restarts cage qsfp56-dd-4 (spark5, spark6)",
        "qsfp56-dd-4-5: auto-negotiation true -> no, speed (none) -> 200G-baseCR4, fec-mode auto -> fec91",
        "bounces all 34 ports",
    ):
        assert text in ended, ended.text
    assert desk804.emulator.writes() == 0


def test_it_is_applied_and_a_second_run_writes_nothing(desk804: Desk804) -> None:
    ended = desk804.run("-y")
    assert ended.code == 0, ended.text
    assert up(desk804) == set(NODES.values())
    for lane in range(1, 9):
        assert desk804.row(f"qsfp56-dd-4-{lane}")["l2mtu"] == "9500"
        assert desk804.row(f"qsfp56-dd-3-{lane}")["l2mtu"] == "1584"
    writes = desk804.emulator.writes()
    again = desk804.run("-y")
    assert again.code == 0, again.text
    assert again.lines("No changes")
    assert desk804.emulator.writes() == writes


def test_another_breakout_restarts_its_cage_only(desk804: Desk804) -> None:
    assert desk804.run("-y").code == 0
    downs = {name: link["downs"] for name, link in desk804.emulator.state()["links"].items()}
    written = len(desk804.sent(SET))
    desk804.cages = CAGES | {"qsfp56-dd-4": "4x100G"}
    desk804.nodes = {name: leg for name, leg in NODES.items() if "dd-1" in leg}
    ended = desk804.run("-y", "--diff")
    assert ended.code == 0, ended.text
    assert "cage qsfp56-dd-4, 2x200G copper -> 4x100G copper: restarts cage qsfp56-dd-4 (no node)" in ended
    sentences = desk804.sent(SET)[written:]
    assert sentences
    assert all("=speed=100G-baseCR2" in sentence for sentence in sentences)
    after = {name: link["downs"] for name, link in desk804.emulator.state()["links"].items()}
    assert {name for name in after if after[name] != downs[name]} <= {f"qsfp56-dd-4-{lane}" for lane in range(1, 9)}


REFUSED = (
    (
        {"qsfp56-dd-5": "4x100G"},
        "switches.crs804.cages.qsfp56-dd-5: a CRS804 has no such cage; its cages are qsfp56-dd-1",
    ),
    ({"sfp56-1": "1x50G"}, "switches.crs804.cages.sfp56-1: a CRS804 has no such cage; its cages are qsfp56-dd-1"),
    ({"qsfp56-dd-2": "3x100G"}, "qsfp56-dd-2 cannot be 3x100G: its 8 lanes carry one or four legs"),
)
"""Cages that are declared besides, and the message about them after the file and its line."""


@pytest.mark.parametrize(("cages", "reported"), REFUSED)
def test_a_wrong_cage_is_refused_with_its_line(desk804: Desk804, cages: dict[str, str], reported: str) -> None:
    desk804.cages = CAGES | cages
    text = desk804.check()
    lines = (desk804.folder / "rack.yaml").read_text().splitlines()
    (name,) = cages
    number = next(at for at, line in enumerate(lines, start=1) if f"{name}:" in line)
    assert f"rack.yaml:{number}: " in text or f"rack.yaml:{number + 1}: " in text, text
    assert reported in text
    assert desk804.emulator.writes() == 0


WRONG = (
    ("crs812", BOARD, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
    ("crs804", "CRS812-8DS-2DQ-2DDQ", "is a CRS812-8DS-2DQ-2DDQ; the rack file means a CRS804-4DDQ"),
)
"""The declared model, that of the unit, and the message."""


@pytest.mark.parametrize(("declared", "board", "reported"), WRONG)
def test_a_unit_of_another_model_is_not_written_to(
    tmp_path: Path, make_switch: MakeSwitch, declared: str, board: str, reported: str
) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    workdir = Desk804(folder, make_switch(model=board, cables=CABLES[:1]), {"model": declared})
    workdir.cages = {"qsfp56-dd-1": "4x100G"}
    workdir.nodes = {name: leg for name, leg in NODES.items() if "dd-1" in leg}
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert reported in ended
    assert workdir.emulator.writes() == 0


def test_a_run_does_not_cut_its_own_path(desk804: Desk804) -> None:
    desk804.emulator.control({"op": "learn", "address": "127.0.0.1", "interface": "qsfp56-dd-4-1"})
    ended = desk804.run("-y")
    unharmed(ended, desk804)
    assert (
        "through its port qsfp56-dd-4-1, which the plan takes down with cage qsfp56-dd-4; connect it to ether1" in ended
    )
    assert desk804.emulator.writes() == 0


def test_a_record_of_it_is_played_by_the_same_model(
    desk804: Desk804, start_recorded: MakeRecorded, tmp_path: Path
) -> None:
    assert desk804.run("-y").code == 0
    waits_for(lambda: up(desk804) == set(NODES.values()))
    with Operator(tmp_path, desk804.emulator).open() as opened:
        document = probe(opened)
    path = tmp_path / "crs804.json"
    path.write_text(json.dumps(document))
    played = start_recorded(path)
    again = probed(played)
    for menu in ("/interface/ethernet", "/system/routerboard"):
        assert [row.get("default-name") for row in again["menus"][menu]] == [
            row.get("default-name") for row in document["menus"][menu]
        ]
    assert again["menus"]["/system/routerboard"][0]["model"] == BOARD
    assert {name for name, status in played.links().items() if status == "link-ok" and "dd" in name} == up(desk804)


def test_the_rack_file_loads(desk804: Desk804) -> None:
    assert "error" not in desk804.check().lower()
    assert load(desk804.folder / "rack.yaml").switches["crs804"].hardware is CRS804
