"""`sparkrack accept` against the emulated switch: what it shows of each claim, and that nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.claims.claims import known_claims
from core.routeros.menus import Row, Sentence
from core.ssh import node_shells
from sparkrack.accept.model import AcceptReport, ClaimResult
from sparkrack.cli.main import sparkrack
from switch.verify_client import SwitchChecks
from tests.emulator.switch_runs import waits_for
from tests.emulator.test_crs804 import Desk804, desk804
from tests.emulator.verify_fixtures import Kept, declared
from tests.unit.cli.accept_nodes import Nodes, ethtool

__all__ = ["desk804"]
CLAIMS = {claim.id: claim for claim in known_claims()}
ON_SWITCH = (
    *("switch.monitor.fields", "switch.device-mode", "switch.qos.menus", "switch.reader.policies"),
    *("switch.console-inspect", "fabric.ethtool-speed"),
)
"""Claims that an emulated CRS812 shows."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A switch with all legs up, read over REST by the declared reader."""
    # A claim is about 7.23.
    with declared(tmp_path_factory.mktemp("accept"), {"version": "7.23.8 (long-term)"}) as made:
        made.rack()
        waits_for(lambda: "initializing" not in made.emulator.links().values())
        yield made


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Nodes()
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    return made


@pytest.fixture(autouse=True)
def _heal_afterwards(kept: Kept) -> Iterator[None]:
    yield
    kept.emulator.control({"op": "heal"})


def run(folder: Path, *words: str) -> Result:
    arguments = ["accept", "--rack", str(folder / "rack.yaml"), *words]
    return CliRunner().invoke(sparkrack, arguments, catch_exceptions=False)


def report(folder: Path, *words: str) -> AcceptReport:
    ended = run(folder, "--json", *words)
    found = AcceptReport.model_validate_json(ended.stdout)
    assert found.exit == ended.exit_code
    return found


def of(folder: Path, claim: str) -> ClaimResult:
    (found,) = report(folder, "--claim", claim).claims
    return found


Change = Callable[[dict[str, str]], object]


def plant(patch: pytest.MonkeyPatch, command: str, change: Change) -> None:
    """Change each row that the switch answers to a command, after the real answer has arrived."""
    asked: Callable[[SwitchChecks, Sentence], tuple[Row, ...]] = SwitchChecks.ask

    def ask(look: SwitchChecks, sentence: Sentence) -> tuple[Row, ...]:
        rows = [dict(row) for row in asked(look, sentence)]
        for row in rows if sentence[0] == command else ():
            change(row)
        return tuple(rows)

    patch.setattr(SwitchChecks, "ask", ask)


def test_everything_holds_and_nothing_is_written(kept: Kept, nodes: Nodes) -> None:
    before = kept.emulator.writes()
    found = report(kept.folder)
    results = {one.id: one for one in found.claims}
    assert {name: results[name].reason for name in ON_SWITCH if results[name].result != "observed"} == {}
    assert found.counts["refuted"] == 0
    assert all(host.answered for host in found.hosts)
    assert results["discovery.neighbor-words"].result == "not observed"
    assert results["crs804.model"].reason == "this rack has no host that it is about"
    assert kept.emulator.writes() == before


MONITOR, ETHERNET = "/interface/ethernet/monitor", "/interface/ethernet/print"
PLANTED: Mapping[str, tuple[str, str, Change, str]] = {
    "a monitor without fec": ("switch.monitor.fields", MONITOR, lambda row: row.pop("fec", None), "fec is absent"),
    "a monitor without rate": ("switch.monitor.fields", MONITOR, lambda row: row.pop("rate", None), "rate is absent"),
    "a monitor without status": (
        "switch.monitor.fields",
        MONITOR,
        lambda row: row.pop("status", None),
        "status is absent",
    ),
    "another word for the rate": (
        "switch.monitor.fields",
        MONITOR,
        lambda row: row.update(rate="100G-baseCR2"),
        "rate is 100G-baseCR2",
    ),
    "another word for a link": (
        "switch.monitor.fields",
        MONITOR,
        lambda row: row.update(status="up"),
        "status is up",
    ),
    "a mode without scheduler": (
        "switch.device-mode",
        "/system/device-mode/print",
        lambda row: row.pop("scheduler", None),
        "scheduler is absent",
    ),
    "a queue without its schedule": (
        "switch.qos.menus",
        "/interface/ethernet/switch/qos/tx-manager/queue/print",
        lambda row: row.pop("schedule", None),
        "schedule absent",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_difference_refutes_its_claim(case: str, kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, sentence, change, text = PLANTED[case]
    plant(monkeypatch, sentence, change)
    ended = run(kept.folder, *(word for name in ("switch.console-inspect", claim) for word in ("--claim", name)))
    assert ended.exit_code == 2
    assert f"refuted: {claim}: " in ended.stdout
    assert text in of(kept.folder, claim).hosts[0].evidence
    refuted = [one.id for one in report(kept.folder).claims if one.result == "refuted"]
    assert claim in refuted
    assert set(refuted) <= {claim, "fabric.ethtool-speed"}


SPEEDS = {
    "another word": (ethtool("100Gb/s"), "refuted"),
    "another speed": (ethtool("200000Mb/s"), "refuted"),
    "no speed": (ethtool("Unknown!"), "refuted"),
    "no link": (ethtool("Unknown!", "no"), "not observed"),
    "no interface": ("", "not observed"),
    "something else": ("ethtool: not found\n", "not observed"),
}


@pytest.mark.parametrize("case", SPEEDS)
def test_speeds_of_halves(case: str, kept: Kept, nodes: Nodes) -> None:
    nodes.changed["fabric.ethtool-speed"], result = SPEEDS[case]
    found = of(kept.folder, "fabric.ethtool-speed")
    assert found.result == result
    assert {host.unknown for host in found.hosts} == {case == "something else"}


FAULTS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "a menu is absent": (
        "switch.qos.menus",
        {"kind": "trap", "match": "/interface/ethernet/switch/qos/profile", "message": "no such command prefix"},
        "refuted",
    ),
    "a menu may not be read": (
        "switch.qos.menus",
        {"kind": "trap", "match": "/interface/ethernet/switch/qos/profile", "message": "not enough permissions (9)"},
        "not observed",
    ),
    "the reader may not see users": (
        "switch.reader.policies",
        {"kind": "trap", "match": "/user/print", "message": "not enough permissions (9)"},
        "refuted",
    ),
    "the switch fails once": (
        "switch.reader.policies",
        {"kind": "trap", "match": "/user/print", "message": "action timed out"},
        "not observed",
    ),
    "no answer of the console": (
        "switch.console-inspect",
        {"kind": "trap", "match": "/console/inspect", "message": "no such command prefix"},
        "refuted",
    ),
    "the switch closes the connection": (
        "switch.console-inspect",
        {"kind": "drop", "match": "/console"},
        "not observed",
    ),
    "the monitor is refused": ("switch.monitor.fields", {"kind": "trap", "match": MONITOR}, "not observed"),
    "the ports are refused": ("switch.monitor.fields", {"kind": "trap", "match": ETHERNET}, "not observed"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_refusal_of_the_switch(case: str, kept: Kept, nodes: Nodes) -> None:
    claim, fault, result = FAULTS[case]
    kept.emulator.control({"op": "fault", "times": 0, **fault})
    found = of(kept.folder, claim)
    assert (found.result, found.unknown) == (result, result == "not observed"), found


def test_a_leg_without_a_link_is_not_observed(kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ETHERNET, lambda row: row.update(running="false"))
    plant(monkeypatch, MONITOR, lambda row: row.update(status="no-link"))
    found = of(kept.folder, "switch.monitor.fields")
    assert (found.result, found.unknown) == ("not observed", False)
    assert "no cabled leg with a forced speed is up" in found.reason


def test_a_switch_that_does_not_answer(kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRS812_READER", "wrong")
    found = report(kept.folder)
    assert [host.host for host in found.hosts if not host.answered] == ["crs812"]
    results = {one.id: one for one in found.claims}
    for name in ("switch.monitor.fields", "switch.device-mode", "fabric.ethtool-speed", "switch.reader.policies"):
        assert (results[name].result, results[name].unknown) == ("not observed", True), name
    only = report(kept.folder, "--limit", "nodes", "--claim", "fabric.ethtool-speed")
    assert (only.claims[0].result, only.claims[0].unknown) == ("not observed", False)
    assert "crs812 is not selected" in only.claims[0].reason
    ended = run(kept.folder, "--limit", "switches")
    assert ended.exit_code == 1
    assert "crs812: unknown: " in ended.stdout


CRS804 = [name for name in CLAIMS if name.startswith("crs804.") and CLAIMS[name].level == "look"]


def test_a_crs804(desk804: Desk804, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    desk804.write()
    monkeypatch.setenv("CRS812_PASSWORD", desk804.emulator.password)
    words = [word for name in CRS804 for word in ("--claim", name)]
    found = report(desk804.folder, "--limit", "switches", *words)
    assert {one.id: one.result for one in found.claims} == dict.fromkeys(CRS804, "observed")
    plant(monkeypatch, "/system/routerboard/print", lambda row: row.update(model="CRS804-4DDQ-hRM"))
    assert of(desk804.folder, "crs804.model").result == "refuted"


def test_neighbours(kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Callable[[SwitchChecks, Sentence], tuple[Row, ...]] = SwitchChecks.ask
    rows = [{"interface": "ether1,bridge"}, {"interface": "qsfp56-dd-1-1"}]

    def ask(look: SwitchChecks, sentence: Sentence) -> tuple[Row, ...]:
        return tuple(rows) if sentence[0] == "/ip/neighbor/print" else asked(look, sentence)

    monkeypatch.setattr(SwitchChecks, "ask", ask)
    assert of(kept.folder, "discovery.neighbor-words").result == "observed"
    rows.append({"interface": "switch1-cpu(ether1)"})
    assert of(kept.folder, "discovery.neighbor-words").result == "refuted"
