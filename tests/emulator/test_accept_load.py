"""The pulled cable of `sparkrack accept --level load`: an emulated switch whose cable a function pulls, and a node with
the carrier that this cable gives it.
"""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from core.ssh import node_shells
from core.ssh.root_shell import UnreachableError
from core.util.progress import NO_PROGRESS
from sparkrack.accept.load import cable
from sparkrack.accept.load.cable import CLAIMS, port_of, pulled_cable
from sparkrack.accept.load.part import LoadError, LoadRun
from sparkrack.accept.model import MachineResult
from sparkrack.accept.run import Forgetful
from sparkrack.cli.accept import TerminalHand
from tests.emulator.switch_runs import waits_for
from tests.emulator.verify_fixtures import Kept, declared

PORT, LEG = "spark2/1", "qsfp56-dd-1-3"
SOCKET = {"cage": "qsfp56-dd-1", "lane": 3}
HALVES = ("enp1s0f1np1", "enP2p1s0f1np1")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with declared(tmp_path_factory.mktemp("load")) as made:
        waits_for(lambda: "initializing" not in made.emulator.links().values())
        yield made


class Node:
    """spark2. `stuck`: its interfaces whose carrier stays; `silent`: it does not answer; `frames`: whether full frames
    pass on a link; `pings`: the commands that sent them.
    """

    def __init__(self, kept: Kept) -> None:
        self.file = kept.folder / "spark2.json"
        self.stuck: tuple[str, ...] = ()
        self.silent = False
        self.frames = True
        self.pings: list[str] = []

    def shell(self, node: str, _config: Path, _seconds: float) -> Any:
        return SimpleNamespace(run=self.run, close=lambda: None, hostname=node)

    def run(self, script: str) -> Any:
        if self.silent:
            raise UnreachableError("spark2", "Connection timed out")
        linked: bool = json.loads(self.file.read_text())["links"]["1"]["carrier"]
        if script.startswith("ping"):
            self.pings.append(script)
            return SimpleNamespace(rc=0 if linked and self.frames else 1, stdout="", stderr="")
        words = {name: "yes" if linked or name in self.stuck else "no" for name in HALVES}
        stdout = "".join(f"Settings for {name}:\n\tLink detected: {word}\n" for name, word in words.items())
        return SimpleNamespace(rc=0, stdout=stdout, stderr="")


class Hand:
    """The operator: does what is asked unless told otherwise. `asked`: the texts; `never`: movements that are confirmed
    and not done; `silent`: confirms nothing; `after`: is called with each movement once it is done; `waits`: seconds
    for a link after the cable is plugged in.
    """

    def __init__(
        self,
        kept: Kept,
        *,
        never: tuple[str, ...] = (),
        silent: bool = False,
        after: Callable[[str], object] = lambda _: None,
        waits: float = 60.0,
    ) -> None:
        self._kept, self._never, self._silent, self._after, self._waits = kept, never, silent, after, waits
        self.asked: list[str] = []

    def ask(self, text: str) -> None:
        self.asked.append(text)
        what = text.partition(" ")[0]
        if what == "plug":
            cable.LINK_SECONDS = self._waits  # the fixtures restore it
        if what not in self._never:
            self._kept.emulator.control({"op": "cable", "do": what, **SOCKET})
        self._after(what)

    def done(self) -> bool:
        return not self._silent

    @property
    def movements(self) -> list[str]:
        return [text.partition(" ")[0] for text in self.asked]


@pytest.fixture
def node(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(kept)
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    monkeypatch.setattr(cable, "working", lambda *_, **__: {})
    monkeypatch.setattr(cable, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(cable, "LINK_SECONDS", 60.0)
    monkeypatch.setattr(cable, "AGAIN_SECONDS", 0.2)
    yield made
    kept.emulator.control({"op": "heal"})
    kept.emulator.control({"op": "cable", "do": "plug", **SOCKET})
    waits_for(lambda: bool(json.loads(made.file.read_text())["links"]["1"]["carrier"]))


def a_run(kept: Kept, hand: Hand, said: list[str] | None = None, begun: dict[str, str] | None = None) -> LoadRun:
    held: Any = SimpleNamespace(head="spark1", check=lambda: None)
    lines: list[str] = [] if said is None else said
    rack = kept.rack()
    return LoadRun(
        rack, tuple(rack.nodes), frozenset(), NO_PROGRESS, lines.append, held, hand, Forgetful({}, begun or {})
    )


def pulled(run: LoadRun) -> dict[str, MachineResult]:
    found = {claim: tuple(hosts) for claim, hosts in pulled_cable(run, port_of(run.rack, PORT)).items()}
    assert set(found) == set(CLAIMS)
    return {claim: host for claim, (host,) in found.items()}


def test_a_cable_is_pulled_and_plugged_in_again(kept: Kept, node: Node) -> None:
    hand = Hand(kept)
    found = pulled(a_run(kept, hand))
    assert {host.result for host in found.values()} == {"observed"}, found
    assert hand.movements == ["pull", "plug"]
    assert all(f"the cable of {PORT}" in text and LEG in text for text in hand.asked)
    assert "full frames pass after" in found["fabric.pulled-cable"].evidence
    assert f"{LEG} link down" in found["switch.link-log"].evidence
    size = kept.rack().fabric.mtu - 28
    # One of each half, so that a half that stays dark is seen.
    assert all(ping.count(f"-M do -s {size}") == 2 for ping in node.pings)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come is not waited for."""
    monkeypatch.setattr(cable, "LINK_SECONDS", 3.0)
    monkeypatch.setattr(cable, "HAND_SECONDS", 3.0)


def _stuck(node: Node) -> None:
    node.stuck = HALVES


def _half_stuck(node: Node) -> None:
    node.stuck = HALVES[1:]


def _no_frames_after(node: Node) -> None:
    run = node.run

    def later(script: str) -> Any:
        node.frames = not node.pings
        return run(script)

    node.run = later  # type: ignore[method-assign]


def _as_it_is(_node: Node) -> None:
    pass


DIFFERENT: Mapping[str, tuple[Callable[[Node], None], dict[str, Any], str, str]] = {
    "the node keeps its carrier": (_stuck, {}, "refuted", f"{HALVES[0]} of spark2 shows a link"),
    "a half keeps its carrier": (_half_stuck, {}, "refuted", f"{HALVES[1]} of spark2 shows a link"),
    "no full frames afterwards": (_no_frames_after, {"waits": 10.0}, "refuted", "full frames do not pass"),
    "another cable was pulled": (_as_it_is, {"never": ("pull",)}, "not observed", "both ends kept their link"),
    "nothing is confirmed": (_as_it_is, {"never": ("pull",), "silent": True}, "not observed", "was not confirmed"),
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs(case: str, kept: Kept, node: Node) -> None:
    plant, how, result, text = DIFFERENT[case]
    plant(node)
    found = pulled(a_run(kept, Hand(kept, **how)))["fabric.pulled-cable"]
    assert (found.result, found.unknown) == (result, result == "not observed"), found
    assert text in found.evidence


@pytest.mark.usefixtures("short")
def test_a_cable_that_is_not_plugged_in_again_ends_the_run(kept: Kept, node: Node) -> None:
    said: list[str] = []
    with pytest.raises(LoadError, match=f"{HALVES[1]} of spark2 and crs812/{LEG}; look at both"):
        pulled(a_run(kept, Hand(kept, never=("plug",), waits=3.0), said))
    assert [line for line in said if line.startswith(f"plug the cable of {PORT} in again")]


def test_a_cable_that_an_earlier_run_left_out_is_plugged_in_first(kept: Kept, node: Node) -> None:
    kept.emulator.control({"op": "cable", "do": "pull", **SOCKET})
    waits_for(lambda: node.run("ping").rc != 0)
    hand, said = Hand(kept), list[str]()
    found = pulled(a_run(kept, hand, said, {"pull": PORT}))
    assert hand.movements == ["plug", "pull", "plug"]
    assert "an earlier run that was ended" in said[0]
    assert found["fabric.pulled-cable"].result == "observed"


def test_a_cable_without_a_link_is_not_pulled(kept: Kept, node: Node) -> None:
    kept.emulator.control({"op": "cable", "do": "pull", **SOCKET})
    waits_for(lambda: node.run("ping").rc != 0)
    hand = Hand(kept)
    found = pulled(a_run(kept, hand))
    assert hand.asked == []
    assert all(host.unknown and "does not carry frames" in host.evidence for host in found.values())


def test_a_session_that_breaks_is_opened_again(kept: Kept, node: Node) -> None:
    def breaks(_what: str) -> None:
        kept.emulator.control({"op": "fault", "kind": "drop", "match": "/interface/ethernet/monitor"})

    found = pulled(a_run(kept, Hand(kept, after=breaks)))
    assert {host.result for host in found.values()} == {"observed"}, found


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("end", ["spark2", f"crs812/{LEG}"])
def test_an_end_that_cannot_be_read_refutes_nothing(end: str, kept: Kept, node: Node) -> None:
    """It is silent while the cable is out."""

    def after(what: str) -> None:
        if end == "spark2":
            node.silent = what == "pull"
        elif what == "pull":
            fault = {"kind": "drop", "match": "/interface/ethernet/monitor", "times": 0}
            kept.emulator.control({"op": "fault", **fault})
        else:
            kept.emulator.control({"op": "heal"})

    found = pulled(a_run(kept, Hand(kept, after=after)))["fabric.pulled-cable"]
    assert (found.result, found.unknown) == ("not observed", True), found
    assert f"{end} has a link is unknown" in found.evidence


@pytest.mark.usefixtures("short")
def test_an_end_that_cannot_be_read_does_not_prove_the_cable(kept: Kept, node: Node) -> None:
    def after(what: str) -> None:
        node.silent = what == "plug"

    with pytest.raises(LoadError, match=f"again, 3 s after it was asked for: whether {HALVES[0]} of spark2 and"):
        pulled(a_run(kept, Hand(kept, after=after, waits=3.0)))


REFUSAL = "not enough permissions (9)"
LOGS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "the log is refused": ({"kind": "trap", "match": "/log/print", "message": REFUSAL}, "refuted", REFUSAL),
    "the connection breaks": ({"kind": "drop", "match": "/log/print"}, "not observed", "could not be read"),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_that_cannot_be_read(case: str, kept: Kept, node: Node) -> None:
    fault, result, text = LOGS[case]
    kept.emulator.control({"op": "fault", "times": 0, **fault})
    found = pulled(a_run(kept, Hand(kept)))
    assert found["switch.link-log"].result == result, found
    assert text in found["switch.link-log"].evidence
    assert found["fabric.pulled-cable"].result == "observed"


@pytest.mark.parametrize(("seconds", "result"), [(0, "observed"), (100, "refuted")])
def test_the_time_of_a_pull_may_be_that_of_the_one_before(
    seconds: int, result: str, kept: Kept, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has whole seconds: `last-link-down-time` stays as it was, and has to be that of the new line in the log."""
    read = cable._LinkLog._read

    def with_same_time(log: cable._LinkLog) -> tuple[Mapping[str, Any], str]:
        rows, down = read(log)
        if hasattr(log, "_down"):
            moment = datetime.fromisoformat(f"2026-01-02 {down[-8:]}") - timedelta(seconds=seconds)
            log._down = down = f"{down[:-8]}{moment:%H:%M:%S}"
        return rows, down

    monkeypatch.setattr(cable._LinkLog, "_read", with_same_time)
    found = pulled(a_run(kept, Hand(kept)))["switch.link-log"]
    assert found.result == result, found
    assert ("last-link-down-time is " in found.evidence) == (result == "refuted")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The keyboard of a terminal, which is stdin."""
    keyboard, its = pty.openpty()
    with os.fdopen(its) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield keyboard
    os.close(keyboard)


def test_the_hand_at_a_terminal(keys: int) -> None:
    said: list[str] = []
    screen: Any = SimpleNamespace(warn=said.append)
    hand = TerminalHand(screen)
    os.write(keys, b"\n")
    hand.ask("pull it")
    assert said == ["pull it"]
    assert not hand.done(), "an ENTER from before confirms nothing"
    os.write(keys, b"\n")
    waits_for(hand.done)
    assert not hand.done(), "one ENTER confirms one movement"
    os.write(keys, b"\x04")
    with pytest.raises(click.Abort):
        waits_for(hand.done)
