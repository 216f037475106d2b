"""`sparkrack accept --level change`: what a spare cage shows, a switch that is as before, and runs that were ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from core.claims.claims import known_claims
from core.routeros.session import SessionConnection
from core.ssh import node_shells
from lab.routeros_emulator.config import CableTail, EmulatedCable
from sparkrack.accept import trials
from sparkrack.accept.model import AcceptReport, ClaimResult
from sparkrack.accept.trials import TRIED
from sparkrack.cli.main import sparkrack
from switch.executor import TransactionOutcome, execute
from tests.emulator import verify_fixtures
from tests.emulator.emulator_process import reference_cables
from tests.emulator.switch_runs import waits_for
from tests.emulator.verify_fixtures import Kept, declared
from tests.unit.cli.accept_nodes import Nodes

SPARE, DOUBLE = "crs812/qsfp56-1", "crs812/qsfp56-dd-2"
DOUBLE_ONLY = frozenset({"switch.breakout.4x50g", "switch.breakout.1x100g", "switch.breakout.linked"})
"""Claims about cages of eight lanes; `DOUBLE` is spare in a rack file of half of the nodes."""
CABLE = EmulatedCable(
    cage="qsfp56-1",
    tails=(
        CableTail(lane=1, lanes=2, gbps=100, node="x", port=0),
        CableTail(lane=3, lanes=2, gbps=100, node="x", port=1),
    ),
)
TABLES = (
    *("/interface/ethernet", "/interface/bridge", "/interface/bridge/port", "/interface/ethernet/switch/qos/port"),
    *("/system/script", "/system/scheduler", "/user", "/ip/service", "/system/identity"),
)
SETTINGS = frozenset(
    (
        *("name", "default-name", "disabled", "auto-negotiation", "speed", "fec-mode", "l2mtu", "mtu", "comment"),
        *("bridge", "interface", "hw", "pvid", "trust-l3", "pfc", "egress-rate-queue3", "source", "on-event"),
        *("group", "address", "rx-flow-control", "tx-flow-control", "vlan-filtering"),
    )
)
"""Fields that a user sets, among others that count and change."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A declared switch with a cable in a cage that is not declared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_fixtures, "_cables_with_macs", lambda folder: (*reference_cables(folder), CABLE))
        with declared(tmp_path_factory.mktemp("change")) as made:
            made.rack()
            made.by_hand("/interface/ethernet/set .id=</interface/ethernet default-name=qsfp56-dd-2-1> fec-mode=off")
            waits_for(lambda: "initializing" not in made.emulator.links().values())
            yield made


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Nodes()
    made.silent = {"spark1": "no route to host"}  # the node with the lock
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    return made


@pytest.fixture(autouse=True)
def _as_before(kept: Kept) -> Iterator[None]:
    """No test leaves anything on the switch."""
    before = tables(kept)
    yield
    kept.emulator.control({"op": "heal"})
    for path, rows in tables(kept).items():
        assert rows == before[path], path


def tables(kept: Kept) -> Mapping[str, Any]:
    found = kept.emulator.state()["tables"]
    rows = {path: found[path] for path in TABLES if path in found}
    return {path: [{k: v for k, v in row.items() if k in SETTINGS} for row in table] for path, table in rows.items()}


def half(kept: Kept) -> Path:
    """A rack file with the nodes of the first cage, so that the second one is spare."""
    yaml, file = YAML(typ="safe"), kept.folder / "half.yaml"
    rack = yaml.load(kept.folder / "rack.yaml")
    rack["nodes"] = {name: node for name, node in rack["nodes"].items() if name <= "spark4"}
    del rack["switches"]["crs812"]["cages"]["qsfp56-dd-2"]
    yaml.dump(rack, file)
    return file


def accept(kept: Kept, *words: str | Path) -> Result:
    arguments = ["accept", "--rack", kept.folder / "rack.yaml", *words]
    return CliRunner().invoke(sparkrack, list(map(str, arguments)), catch_exceptions=False)


def change(kept: Kept, *claims: str, spare: str = SPARE) -> dict[str, ClaimResult]:
    words: list[str | Path] = [word for claim in claims for word in ("--claim", claim)]
    words += ["--rack", half(kept)] if spare == DOUBLE else []
    ended = accept(kept, "--level", "change", "--spare", spare, "-y", "--json", "--limit", "switches", *words)
    assert ended.stdout, ended.stderr
    found = AcceptReport.model_validate_json(ended.stdout)
    return {one.id: one for one in found.claims}


def test_each_trial_belongs_to_a_claim_of_its_level() -> None:
    levels = {claim.id: claim.level for claim in known_claims()}
    assert {levels[name] for name in TRIED} == {"change"}


def test_a_spare_cage_shows_its_claims(kept: Kept, nodes: Nodes) -> None:
    found = change(kept, *TRIED)
    results = {name: (one.result, one.hosts[0].evidence) for name, one in found.items()}
    observed = {name for name, (result, _) in results.items() if result == "observed"}
    assert observed >= {
        *("switch.lanes.illegal-pair", "switch.lanes.unset-speed", "switch.fec.auto", "switch.scheduler.startup"),
        *("switch.rollback.script-size", "switch.qos.egress-rate", "switch.safe-mode.api"),
    }, results
    assert {result for result, _ in results.values()} == {"observed", "not observed"}, results
    assert not any(one.unknown for one in found.values()), results


def test_a_cage_shows_no_claim_about_another_kind_of_cage(kept: Kept, nodes: Nodes) -> None:
    writes = kept.emulator.writes()
    for name, one in change(kept, *DOUBLE_ONLY).items():
        (host,) = one.hosts
        assert (one.result, one.unknown) == ("not observed", False), name
        assert host.evidence == "the declared spare cage qsfp56-1 is not a qsfp56-dd cage"
    assert kept.emulator.writes() == writes


def test_a_spare_cage_of_eight_lanes_shows_its_claims(kept: Kept, nodes: Nodes) -> None:
    """Its cable is that of 4x100G, so the other breakouts have no link."""
    found = change(kept, *DOUBLE_ONLY, spare=DOUBLE)
    results = {name: one.result for name, one in found.items()}
    evidence = {name: one.hosts[0].evidence for name, one in found.items()}
    assert results.pop("switch.breakout.linked") == "observed", evidence
    assert set(results.values()) == {"not observed"}, evidence
    legs = {name: len(re.findall("qsfp56-dd-2-[1-8]: ", text)) for name, text in evidence.items()}
    assert legs == {"switch.breakout.linked": 4, "switch.breakout.4x50g": 4, "switch.breakout.1x100g": 1}, evidence
    assert not any(one.unknown for one in found.values()), evidence


class Clock:
    """The time of a trial. It passes only in `sleep`, and not while a leg still comes up: then `sleep` waits in
    real time. `schedules`: whether a schedule is awaited until it has run, as it does in real time.
    """

    schedules = True

    def __init__(self, kept: Kept) -> None:
        self._kept, self._now, self._left = kept, 0.0, 2000

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        awaited = self.schedules and seconds == trials.SCHEDULE_POLL_SECONDS
        if awaited or "initializing" in self._kept.emulator.links().values():
            self._left -= 1
            assert self._left, "the switch never comes to rest"
            time.sleep(0.03)
        else:
            self._now += seconds


@pytest.fixture(autouse=True)
def clock(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(kept)
    monkeypatch.setattr(trials, "time", made)
    monkeypatch.setattr(trials, "LINK_SECONDS", 2.0)
    return made


def _second_script(kept: Kept, _patch: pytest.MonkeyPatch) -> None:
    # The first one is that of the rollback timer.
    kept.emulator.control({"op": "fault", "kind": "ignore", "match": "/system/script/add", "after": 1})


def _a_port_goes_down(_kept: Kept, patch: pytest.MonkeyPatch) -> None:
    counts = iter(({"qsfp56-dd-1-1": "1"}, {"qsfp56-dd-1-1": "2"}))
    patch.setattr(trials, "_link_losses", lambda _line: next(counts))


def _release_before_the_end(_kept: Kept, patch: pytest.MonkeyPatch) -> None:
    close = SessionConnection.close

    def released(line: SessionConnection) -> None:
        if not line.lost and line._holding:
            line.revert("/safe-mode/release")
        close(line)

    patch.setattr(SessionConnection, "close", released)


def _plant_fault(**fault: object) -> Callable[[Kept, pytest.MonkeyPatch], None]:
    def plant(kept: Kept, _patch: pytest.MonkeyPatch) -> None:
        kept.emulator.control({"op": "fault", "times": 0, **fault})

    return plant


def _plant_monitor_fields(**fields: str) -> Callable[[Kept, pytest.MonkeyPatch], None]:
    """The monitor shows these values."""

    def plant(kept: Kept, _patch: pytest.MonkeyPatch) -> None:
        for field, value in fields.items():
            kept.emulator.control({"op": "monitor", "field": field, "value": value})

    return plant


def _schedules_stand_still(_kept: Kept, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "schedules", False)
    talk = SessionConnection.talk

    def talked(line: SessionConnection, *words: str) -> list[dict[str, str]]:
        rows = talk(line, *words)
        return [{**row, "run-count": "0"} for row in rows] if words[0] == "/system/scheduler/print" else rows

    patch.setattr(SessionConnection, "talk", talked)


BREAKOUTS = ("first-lane", "1x100g", "4x50g", "linked")
PLANTED: Mapping[str, tuple[str, Callable[[Kept, pytest.MonkeyPatch], None], str]] = {
    "an illegal pair is refused": (
        "switch.lanes.illegal-pair",
        _plant_fault(kind="trap", match="/interface/ethernet/set", message="failure: speed not supported"),
        "speed not supported",
    ),
    "unset takes speed": (
        "switch.lanes.unset-speed",
        _plant_fault(kind="ignore", match="/interface/ethernet/unset"),
        "unset of speed is accepted",
    ),
    "a rate is not kept": (
        "switch.qos.egress-rate",
        _plant_fault(kind="ignore", match="/interface/ethernet/switch/qos/port/set"),
        "is printed as",
    ),
    "a script is not kept": ("switch.rollback.script-size", _second_script, "0 of "),
    "another port goes down": ("switch.lanes.restart", _a_port_goes_down, "took down qsfp56-dd-1-1"),
    "safe mode undoes nothing": ("switch.safe-mode.api", _release_before_the_end, "the change stays"),
    "auto is another FEC": (
        "switch.fec.auto",
        _plant_monitor_fields(fec="off"),
        "fec-mode=auto at 100G on two lanes: fec is off",
    ),
    "auto is not accepted": (
        "switch.fec.auto",
        _plant_fault(kind="trap", match="/interface/ethernet/set", message="failure: fec not supported"),
        "fec not supported",
    ),
    "a schedule does not run": ("switch.scheduler.startup", _schedules_stand_still, "run-count is 0 after 15 s"),
    **{
        f"{name} is refused": (
            f"switch.breakout.{name}",
            _plant_fault(kind="trap", match="/interface/ethernet/set", message="failure: speed not supported"),
            "speed not supported",
        )
        for name in BREAKOUTS
    },
    **{
        f"{name} links at another rate": (
            f"switch.breakout.{name}",
            _plant_monitor_fields(status="link-ok", rate="25Gbps"),
            "links at another rate than",
        )
        for name in BREAKOUTS
    },
}


def test_each_claim_of_a_spare_cage_is_refuted_by_a_difference() -> None:
    assert {claim for claim, _, _ in PLANTED.values()} == set(TRIED)


@pytest.mark.parametrize("case", PLANTED)
def test_a_difference_refutes_its_claim(case: str, kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, plant, text = PLANTED[case]
    plant(kept, monkeypatch)
    found = change(kept, claim, spare=DOUBLE if claim in DOUBLE_ONLY else SPARE)[claim]
    assert (found.result, found.unknown) == ("refuted", False), found
    assert text in found.hosts[0].evidence


LOST: Mapping[str, dict[str, Any]] = {
    "the connection breaks": {"kind": "drop", "match": "/interface/ethernet/unset"},
    "the connection breaks after the write": {"kind": "drop", "match": "/interface/ethernet/set", "executed": True},
    "safe mode is refused": {"kind": "trap", "match": "/safe-mode/take"},
    "the rollback timer is refused": {"kind": "trap", "match": "/system/scheduler/add"},
}


@pytest.mark.parametrize("case", LOST)
def test_what_breaks_is_unknown(case: str, kept: Kept, nodes: Nodes) -> None:
    kept.emulator.control({"op": "fault", **LOST[case]})
    found = change(kept, "switch.lanes.unset-speed")["switch.lanes.unset-speed"]
    assert (found.result, found.unknown) == ("not observed", True), found


def test_a_switch_that_is_not_as_before_ends_the_run(
    kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another session changes the switch during the first of two trials: the second one is not begun."""
    done: list[TransactionOutcome] = []

    def disturbed(*arguments: Any, **options: Any) -> TransactionOutcome:
        done.append(execute(*arguments, **options))
        kept.by_hand("/system/identity/set name=other")
        return done[-1]

    monkeypatch.setattr(trials, "execute", disturbed)
    words = [word for claim in ("switch.lanes.unset-speed", "switch.qos.egress-rate") for word in ("--claim", claim)]
    ended = accept(kept, "--level", "change", "--spare", SPARE, "-y", "--output", tmp_path / "out", *words)
    kept.by_hand("/system/identity/set name=crs812")
    assert (ended.exit_code, len(done)) == (1, 1)
    assert "crs812 is not proven to be as it was: it does not read as before" in ended.stderr
    assert list((tmp_path / "out").iterdir()) == []


REFUSED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "no spare cage": (("--level", "change", "-y"), "go together"),
    "a cage without the level": (("--spare", SPARE), "go together"),
    "a declared cage": (("--level", "change", "--spare", "crs812/qsfp56-dd-1", "-y"), "is not spare"),
    "another cage": (("--level", "change", "--spare", "crs812/qsfp56-9", "-y"), "it has qsfp56"),
    "a cage of one lane": (("--level", "change", "--spare", "crs812/sfp56-1", "-y"), "no cage sfp56-1 of several"),
    "another switch": (("--level", "change", "--spare", "x/qsfp56-1", "-y"), "rack.yaml has no switch x"),
    "an excluded switch": (("--level", "change", "--spare", SPARE, "-y", "--limit", "nodes"), "not among the selected"),
    "no answer to the question": (("--level", "change", "--spare", SPARE), "there is no terminal for a prompt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_before_anything_is_read(case: str, kept: Kept, nodes: Nodes) -> None:
    words, text = REFUSED[case]
    before = len(kept.emulator.log())
    ended = accept(kept, *words)
    assert ended.exit_code == 1
    assert text in ended.stderr
    assert (nodes.scripts, len(kept.emulator.log())) == ([], before)


def test_a_cage_with_a_host_behind_it_is_not_spare(kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = kept.emulator.writes()
    talk = SessionConnection.talk

    def talked(line: SessionConnection, *words: str) -> list[dict[str, str]]:
        rows = talk(line, *words)
        host = {"mac-address": "4C:BB:47:00:09:0A", "on-interface": "qsfp56-1-3", "local": "false"}
        return [*rows, host] if f"?on-interface={host['on-interface']}" in words else rows

    monkeypatch.setattr(SessionConnection, "talk", talked)
    claim = ("--claim", "switch.qos.egress-rate")
    ended = accept(kept, "--level", "change", "--spare", SPARE, "-y", "--limit", "switches", *claim)
    assert ended.exit_code == 1
    assert "crs812/qsfp56-1 is not spare: 1 host behind qsfp56-1-3; nothing was changed" in ended.stderr
    assert kept.emulator.writes() == writes


def test_a_run_that_is_killed_leaves_no_change_and_the_next_one_removes_its_timer(
    kept: Kept, nodes: Nodes, tmp_path: Path
) -> None:
    """Killed while its setting is written under safe mode, which ends with its session."""
    before, seen = tables(kept), len(kept.emulator.log())
    kept.emulator.control({"op": "fault", "kind": "hang", "match": "/interface/ethernet/unset"})
    words = ("--level", "change", "--spare", SPARE, "-y", "--limit", "switches", "--claim", "switch.lanes.unset-speed")
    run = subprocess.Popen(
        [Path(sys.executable).with_name("sparkrack"), "accept", "--rack", kept.folder / "rack.yaml", *words],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        waits_for(lambda: any(line["result"] == "fault: hang" for line in kept.emulator.log()[seen:]), run)
    finally:
        run.kill()
        run.communicate()
    kept.emulator.control({"op": "heal"})
    links = ("/interface/ethernet", "/interface/ethernet/switch/qos/port")
    waits_for(lambda: all(tables(kept)[path] == before[path] for path in links))
    assert len(tables(kept)["/system/scheduler"]) > len(before["/system/scheduler"]), "its rollback timer is left"
    found = change(kept, "switch.qos.egress-rate")["switch.qos.egress-rate"]
    assert found.result == "observed"
