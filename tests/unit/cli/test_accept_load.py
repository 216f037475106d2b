"""The level `load` of `sparkrack accept`: what measurements and checks show of its claims, and what a run leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.claims.claims import known_claims
from core.ssh import node_shells
from core.util.progress import NO_PROGRESS
from core.verify.measurements import Bandwidth
from core.verify.outcomes import Outcome
from roles.rdma.bandwidth_verdict import HEALTHY, LOW, STUCK
from sparkrack.accept.load import bandwidth as measuring
from sparkrack.accept.load import burn, cable, part, restart
from sparkrack.accept.load.bandwidth import bandwidth
from sparkrack.accept.load.cable import pulled_cable
from sparkrack.accept.load.part import LoadRun
from sparkrack.accept.load.restart import Facts, await_restart
from sparkrack.accept.run import Forgetful
from sparkrack.accept.state import AcceptState
from sparkrack.rebuild import restart as rebuild_restart
from sparkrack.rebuild.restart import BOOT_ID
from sparkrack.rebuild.workloads import NodeReachability, NodeWorkload
from tests.unit.status.machines import reference

NODES = ("spark1", "spark2")
PARTS = {
    "bandwidth": {"rdma.bandwidth-borders", "rdma.bandwidth-neighbours"},
    "burn": set(burn.CLAIMS),
    "pull": set(cable.CLAIMS),
    "reboot": set(restart.CLAIMS),
}


def load_run(folder: Path) -> LoadRun:
    free: Any = None
    return LoadRun(reference(folder), NODES, frozenset(), NO_PROGRESS, lambda _: None, free, free, free)


def test_each_part_settles_the_claims_that_name_it() -> None:
    assert {name: {one.id for one in known_claims() if one.load == name} for name in PARTS} == PARTS


def sending(node: str, gbps: float, verdict: str) -> Outcome:
    value = Bandwidth(
        halves=(0,),
        sender=node,
        sender_devices=("enp1s0f1np1",),
        receiver="spark3",
        gbps=(gbps,),
        least=80.0,
        verdict=verdict,
        good=verdict == HEALTHY.name,
        reason="",
    )
    return Outcome(node, "rdma", "test_bandwidth", passed=True, why="", measured=(value,))


MEASURED: Mapping[str, tuple[tuple[float, ...], str, tuple[str, str]]] = {
    "all is sound": ((109.0, 109.0, 108.9, 109.1), HEALTHY.name, ("observed", "observed")),
    "the neighbour slows it": ((90.0, 109.0, 108.9, 109.1), HEALTHY.name, ("observed", "refuted")),
    "within the spread": ((100.0, 109.0, 101.0, 112.0), HEALTHY.name, ("observed", "observed")),
    "no half reaches the border": ((70.0, 70.0, 70.0, 70.0), LOW.name, ("refuted", "observed")),
    "a known fault": ((13.0, 13.0, 13.0, 13.0), STUCK.name, ("not observed", "observed")),
}


@pytest.mark.parametrize("case", MEASURED)
def test_what_a_measurement_shows(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures, verdict, results = MEASURED[case]
    left = list(figures)

    def checks(_rack: object, _files: object, nodes: tuple[str, ...], *_: object) -> list[Outcome]:
        gbps = left.pop(0)
        return [sending(name, gbps, verdict) for name in nodes]

    monkeypatch.setattr(measuring, "run_checks", checks)
    monkeypatch.setattr(measuring, "working", lambda *_, **__: {})
    found = bandwidth(load_run(tmp_path))
    assert tuple(next(iter(hosts)).result for hosts in found.values()) == results
    assert left == []


def test_nothing_is_tried_while_a_unit_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (measuring, cable):
        monkeypatch.setattr(module, "working", lambda *_, **__: {"spark2": "unit qwen runs on spark2"})
    monkeypatch.setattr(measuring, "run_checks", lambda *_: pytest.fail("it was measured"))
    run = load_run(tmp_path)
    found = {**bandwidth(run), **pulled_cable(run, cable.port_of(run.rack, "spark2/1"))}
    hosts = [host for results in found.values() for host in results]
    assert len(found) == 4
    assert all(host.unknown and "not tried: unit qwen runs" in host.evidence for host in hosts)


FACTS = """\
boot 0b6f5a0e-0d0e-4c93-9d3c-35e1a3c1f0aa
kernel 6.17.0-1014-nvidia
interface enp1s0f1np1 02:5a:00:00:00:01 0000:01:00.1
installed 6.11.0-1-nvidia
installed 6.17.0-1014-nvidia
hosts aa  -
cloud-init
"""
CHANGED: Mapping[str, tuple[str, str, str]] = {
    "an interface has another function": ("0000:01:00.1", "0000:01:00.0", "fabric.reboot"),
    "an older kernel runs": ("kernel 6.17.0-1014", "kernel 6.11.0-1", "driver.grub-newest"),
    "/etc/hosts is another file": ("hosts aa", "hosts bb", "access.cloud-init-hosts"),
}


class Restarted:
    """In place of a NodeRestart: the node is back."""

    seconds = 42.0
    outcomes = tuple(
        Outcome("spark2", role, "test_one", passed=True, why="") for role in ("fabric", "lossless", "driver", "memory")
    )


def shown(folder: Path, after: str, restarted: Any) -> dict[str, str]:
    found = restart._results(reference(folder), "spark2", Facts.parse(FACTS), Facts.parse(after), restarted)
    assert set(found) == set(restart.CLAIMS)
    return {claim: next(iter(hosts)).result for claim, hosts in found.items()}


def test_a_restart_after_which_everything_is_as_before(tmp_path: Path) -> None:
    assert set(shown(tmp_path, FACTS, Restarted()).values()) == {"observed"}


@pytest.mark.parametrize("case", CHANGED)
def test_a_difference_after_a_restart_refutes_its_claim(case: str, tmp_path: Path) -> None:
    old, new, claim = CHANGED[case]
    found = shown(tmp_path, FACTS.replace(old, new, 1), Restarted())
    assert [name for name, result in found.items() if result == "refuted"] == [claim]


@pytest.mark.parametrize(("role", "claim"), [("lossless", "lossless.reboot"), ("memory", "reboot.settings")])
def test_a_failed_check_refutes_the_claim_of_its_role(role: str, claim: str, tmp_path: Path) -> None:
    restarted: Any = Restarted()
    restarted.outcomes = (*Restarted.outcomes, Outcome("spark2", role, "test_two", passed=False, why="it is lost"))
    found = shown(tmp_path, FACTS, restarted)
    assert [name for name, result in found.items() if result == "refuted"] == [claim]


class Machine:
    """spark2. `boot`: the number of its boot; `told`: how often it was told to restart."""

    def __init__(self) -> None:
        self.boot = self.told = 0

    def shell(self, node: str, _config: Path, _seconds: float) -> Any:
        return SimpleNamespace(run=self.run, close=lambda: None, hostname=node)

    def run(self, script: str) -> Any:
        identity = f"0b6f5a0e-0d0e-4c93-9d3c-35e1a3c1f0{self.boot:02}"
        if script == "systemctl reboot":
            self.told += 1
            self.boot += 1
        stdout = identity if script == BOOT_ID else FACTS.replace("0b6f5a0e-0d0e-4c93-9d3c-35e1a3c1f0aa", identity)
        return SimpleNamespace(rc=0, stdout=stdout, stderr="")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    monkeypatch.setattr(restart, "working", lambda *_, **__: {})
    monkeypatch.setattr(rebuild_restart, "run_checks", lambda *_, **__: list(Restarted.outcomes))
    monkeypatch.setattr(rebuild_restart, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(restart, "SETTLE_SECONDS", 0.0)
    return made


def restarted(folder: Path, marks: Forgetful) -> dict[str, Any]:
    held: Any = SimpleNamespace(head="spark1", check=lambda: None)
    run = dataclasses.replace(load_run(folder), held=held, marks=marks)
    await_restart(run.rack, run.marks, run.progress, run.say)
    found = {claim: next(iter(hosts)) for claim, hosts in restart.restarted_node(run, "spark2", ()).items()}
    assert set(found) == set(restart.CLAIMS)
    return found


class Marks(Forgetful):
    """Keeps what was begun."""

    def begin(self, part: str, data: str) -> None:
        self.begun[part] = data


def test_a_node_is_restarted_once(machine: Machine, tmp_path: Path) -> None:
    marks = Marks()
    assert {one.result for one in restarted(tmp_path, marks).values()} == {"observed"}
    assert (machine.told, list(marks.begun)) == (1, ["reboot"])


def test_a_node_that_a_killed_run_restarted_is_not_restarted_again(machine: Machine, tmp_path: Path) -> None:
    marks = Marks()
    restarted(tmp_path, marks)
    found = restarted(tmp_path, marks)
    assert machine.told == 1
    assert {claim for claim, one in found.items() if one.result != "observed"} == {"reboot.duration"}
    assert "the time was not measured" in found["reboot.duration"].evidence


def test_a_node_that_a_killed_run_did_not_restart_is_restarted(machine: Machine, tmp_path: Path) -> None:
    marks = Marks()
    restarted(tmp_path, marks)
    machine.boot = 0
    assert {one.result for one in restarted(tmp_path, marks).values()} == {"observed"}
    assert machine.told == 2


def test_a_node_with_a_unit_is_not_restarted(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason names no option that accept does not have."""
    busy = NodeWorkload(NodeReachability.OURS, units=("qwen",))
    monkeypatch.setattr(restart, "working", part.working)
    monkeypatch.setattr(part, "query_workloads", lambda _rack, nodes, _question: dict.fromkeys(nodes, busy))
    monkeypatch.setattr("sparkrack.rebuild.workloads.nodes_of_unit", lambda *_: ("spark2",))
    found = restarted(tmp_path, Marks())
    assert machine.told == 0
    assert all(one.unknown and "not tried: unit qwen" in one.evidence for one in found.values())
    assert not any("--stop-units" in one.evidence or "--containers" in one.evidence for one in found.values())


def test_a_part_that_was_begun_is_known_to_the_next_run(tmp_path: Path) -> None:
    rack = reference(tmp_path)
    state = AcceptState.open(tmp_path, rack, NODES, "spark2")
    state.begin("reboot", "facts")
    state.close(ended=False)
    again = AcceptState.open(tmp_path, rack, NODES, "spark2")
    assert again.begun == {"reboot": "facts"}
    again.close(ended=False)
    other = AcceptState.open(tmp_path, rack, NODES, "spark3")
    assert other.begun == {}
    other.close(ended=True)
