"""The commands that move wires, and that none is sent without need. ``ip`` is a stand-in: no namespace is
touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from lab.routeros_emulator.cabling import EmulatedCabling
from lab.routeros_emulator.lanes import Lane
from lab.routeros_emulator.link_wiring import BridgeWiring, WiringError
from lab.routeros_emulator.links import LinkEnvironment, Links
from lab.routeros_emulator.ports import CRS812
from tests.emulator.emulator_process import reference_cables

IP = """#!/bin/sh
echo "$0 $*" | sed 's|.*/||' >> "$CALLS"
case "$*" in *batch*) cat >> "$CALLS";; *) cat "$FDB";; esac
[ -z "$FAIL" ] || { echo "Cannot find device $FAIL" >&2; exit 1; }
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Stand-ins for ``ip`` and ``bridge`` that note what they are reported."""
    for tool in ("ip", "bridge"):
        (tmp_path / tool).write_text(IP)
        (tmp_path / tool).chmod(0o755)
    (tmp_path / "calls").touch()
    for name, value in {"CALLS": tmp_path / "calls", "FDB": tmp_path / "fdb", "FAIL": ""}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda: (tmp_path / "calls").read_text().splitlines()


def test_attach_sets_the_mtu_before_it_joins(calls: Callable[[], list[str]]) -> None:
    BridgeWiring("fabric").attach(["n1a", "n1b"], 9500)
    assert calls() == [
        "ip -force -batch -",
        "link set dev n1a mtu 9500",
        "link set dev n1a master fabric",
        "link set dev n1b mtu 9500",
        "link set dev n1b master fabric",
    ]


def test_detach(calls: Callable[[], list[str]]) -> None:
    BridgeWiring("fabric").detach(iter(["n1a"]))
    assert calls() == ["ip -force -batch -", "link set dev n1a nomaster"]


def test_nothing_to_do_starts_nothing(calls: Callable[[], list[str]]) -> None:
    BridgeWiring("fabric").detach([])
    assert calls() == []


def test_what_ip_says_is_passed_on(calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "n9")
    with pytest.raises(WiringError, match="Cannot find device n9"):
        BridgeWiring("fabric").attach(["n9"], 9000)


def test_learned_hosts(calls: Callable[[], list[str]], tmp_path: Path) -> None:
    learned = {"mac": "02:00:00:00:01:0a", "ifname": "n1a", "master": "fabric", "state": ""}
    own = learned | {"mac": "02:00:00:00:00:01", "state": "permanent"}
    other = learned | {"master": "elsewhere"}
    (tmp_path / "fdb").write_text(json.dumps([learned, own, other]))
    assert BridgeWiring("fabric").hosts() == [("02:00:00:00:01:0A", "n1a")]


class Recorder:
    """Wires that only remember."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, tuple[str, ...], int]] = []
        self.off: set[str] = set()

    def attach(self, taps: Iterable[str], mtu: int) -> None:
        self.moves.append(("attach", tuple(taps), mtu))

    def detach(self, taps: Iterable[str]) -> None:
        if gone := tuple(taps):
            self.moves.append(("detach", gone, 0))

    def hosts(self) -> Sequence[tuple[str, str]]:
        return ()

    def powered(self, taps: Sequence[str]) -> bool:
        return self.off.isdisjoint(taps)


class Clock:
    """Timers that are due when the test says so."""

    def __init__(self) -> None:
        self.due: list[Clock.Timer] = []

    class Timer:
        def __init__(self, call: Callable[[], None]) -> None:
            self.call: Callable[[], None] | None = call

        def cancel(self) -> None:
            self.call = None

    def later(self, _seconds: float, call: Callable[[], None]) -> Timer:
        self.due.append(self.Timer(call))
        return self.due[-1]

    def settle(self) -> None:
        due, self.due = self.due, []
        for timer in due:
            if timer.call is not None:
                timer.call()


def test_wires_move_only_when_something_changes() -> None:
    wires, clock, reported = Recorder(), Clock(), list[str]()
    l2mtu: dict[str, int | None] = {}

    def lanes(cage: str) -> list[Lane]:
        good = Lane(negotiates=False, speed="100G-baseCR2", fec="fec91")
        return [good] * len(CRS812.by_cage[cage])

    def fabric(name: str) -> int | None:
        return l2mtu.get(name, 1584)

    links = Links(
        CRS812,
        EmulatedCabling(reference_cables()),
        wires,
        1.0,
        LinkEnvironment(lanes, fabric, clock.later, lambda _t, m: reported.append(m)),
    )
    every = tuple(f"n{number}{half}" for number in range(1, 9) for half in "ab")
    links.boot()
    assert wires.moves == [("detach", every, 0)], "a tap left over from an earlier run must not carry traffic"
    wires.moves.clear()
    clock.settle()
    assert wires.moves == [("attach", every[:8], 1584), ("attach", every[8:], 1584)]
    wires.moves.clear()
    links.reconcile()
    assert wires.moves == []
    links.restart(["qsfp56-dd-1"])
    links.restart(["qsfp56-dd-1"])
    clock.settle()
    assert wires.moves == [("detach", every[:8], 0), ("attach", every[:8], 1584)]
    wires.moves.clear()
    l2mtu |= {"qsfp56-dd-1-1": 9500, "qsfp56-dd-1-3": None}
    links.reconcile()
    assert wires.moves == [("detach", ("n2a", "n2b"), 0), ("attach", ("n1a", "n1b"), 9500)]
    wires.moves.clear()
    links.rewire()
    assert {tap for _, taps, _ in wires.moves for tap in taps} == set(every) - {"n2a", "n2b"}


def test_a_wire_that_cannot_be_moved_is_reported_and_does_no_harm() -> None:
    class Broken(Recorder):
        def detach(self, taps: Iterable[str]) -> None:
            raise WiringError(f"Cannot find device {next(iter(taps))}")

    clock, reported = Clock(), list[str]()
    around = LinkEnvironment(lambda _c: [Lane()] * 8, lambda _n: 1584, clock.later, lambda _t, m: reported.append(m))
    Links(CRS812, EmulatedCabling(reference_cables()[:1]), Broken(), 1.0, around).boot()
    assert reported[0] == "wires: Cannot find device n1a"


def test_a_wire_that_could_not_be_attached_is_tried_again() -> None:
    class Late(Recorder):
        def attach(self, taps: Iterable[str], mtu: int) -> None:
            super().attach(taps, mtu)
            if len(self.moves) == 1:
                raise WiringError("Cannot find device n1a")

    wires, clock = Late(), Clock()
    lanes = [Lane(negotiates=False, speed="100G-baseCR2", fec="fec91")] * 8
    around = LinkEnvironment(lambda _c: lanes, lambda _n: 1584, clock.later, lambda _t, _m: None)
    links = Links(CRS812, EmulatedCabling(reference_cables()[:1]), wires, 1.0, around)
    links.restart(["qsfp56-dd-1"])
    clock.settle()
    assert links.attached == {}
    links.reconcile()
    assert len(links.attached) == 8
    assert [move[0] for move in wires.moves] == ["attach", "attach"]


def test_a_wire_that_may_have_been_attached_is_detached_when_its_link_goes() -> None:
    class Half(Recorder):
        def attach(self, taps: Iterable[str], mtu: int) -> None:
            raise WiringError(f"Cannot find device {list(taps)[1]} to give it MTU {mtu}")

    wires, clock = Half(), Clock()
    lanes = [Lane(negotiates=False, speed="100G-baseCR2", fec="fec91")] * 8
    around = LinkEnvironment(lambda _c: lanes, lambda _n: 1584, clock.later, lambda _t, _m: None)
    links = Links(CRS812, EmulatedCabling(reference_cables()[:1]), wires, 1.0, around)
    links.restart(["qsfp56-dd-1"])
    clock.settle()
    links.restart(["qsfp56-dd-1"])
    assert [(move[0], move[1][0]) for move in wires.moves] == [("detach", "n1a")]
