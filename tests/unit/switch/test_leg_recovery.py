"""Legs whose cages restart with a rollback are up and bound to the chip as before, or the run says what remains."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest

from core.hardware.crs812 import CRS812
from core.routeros.errors import SentenceError
from switch.executor import TransactionOutcome, execute
from switch.leg_recovery import LegRecovery, linked, restarted
from switch.link_witness import HalfReport, WitnessReport
from switch.target_state import DeclaredTarget
from switch.transaction import Transaction
from tests.unit.switch.in_memory_switch import Device, Session
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import asking, meaning, reading, row

PORT = "/interface/bridge/port"
IDENTITY = "/system/identity/set"
OLD = "looked again: the switch is as it was before the run"
CAGE = tuple(f"qsfp56-dd-1-{lane}" for lane in range(1, 9))
BY_HAND = (
    'on the switch\'s console: /interface/bridge/port/set [find where interface="qsfp56-dd-1-1" or '
    'interface="qsfp56-dd-1-3" or interface="qsfp56-dd-1-5" or interface="qsfp56-dd-1-7"] hw=no; then the same with '
    "hw=yes; then: sparkrack verify --limit crs812 (docs/runbooks/switch-verdicts.md)"
)


class Bench:
    """A switch that is as declared but for the mtu of a lane and its name; the run that mends it fails at its end.

    bound: the values of hw that are written after the rollback, with their ports.
    """

    def __init__(self, rack: MakeRack, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.rack = device, rack
        assert execute(self.todo(), device.line()).done
        for lane in CAGE[1::2]:
            device.down[lane] = {"name": lane, "status": "no-link"}  # companions tell nothing of the leg
        row(device.tables, "qsfp56-dd-1-3")["mtu"] = "2000"
        device.tables["/system/identity"][0]["name"] = "old"
        device.sessions = 0
        device.heard = []
        self.before = copy.deepcopy(device.tables)
        self.bound: list[tuple[str, int]] = []
        self.at: dict[str, Callable[[], object]] = {}
        answer = device.answer

        def hear(session: Session, words: tuple[str, ...]) -> list[dict[str, str]]:
            if words[0] == f"{PORT}/set" and not session.first:
                ports, hw = (next(w for w in words if w.startswith(name)) for name in ("=.id=", "=hw="))
                self.bound.append((hw[4:], ports.count("*")))
                self.at.get(hw[4:], lambda: None)()
            return answer(session, words)

        monkeypatch.setattr(device, "answer", hear)

    def todo(self, **options: object) -> Transaction:
        goal = DeclaredTarget(*self.rack())
        before = goal.read(asking(self.device.tables))
        return Transaction("sparkrack-undo-20260101T000000-0001", goal, before, goal.plan(before), **options)  # type: ignore[arg-type]

    def run(self, refused: Callable[[], object] = lambda: None, **options: object) -> TransactionOutcome:
        """A run whose last write is refused; `refused` is done then."""
        line = self.device.line()
        self.line = line

        def trap(words: tuple[str, ...]) -> bool:
            if words[0] == IDENTITY:
                refused()
            return words[0] == IDENTITY

        self.device.main.trap = trap
        ended = execute(self.todo(**options), line)
        assert not ended.done
        assert meaning(self.device.tables) == meaning(self.before), ended.text
        assert self.device.armed == []
        assert self.device.holder is None
        return ended


@pytest.fixture
def bench(rack: MakeRack, device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(rack, device, monkeypatch)
    yield made
    hw = [port.get("hw") for port in device.tables[PORT]]
    assert "false" not in hw
    assert "no" not in hw


def test_they_are_up_and_bound_to_the_chip_again(bench: Bench) -> None:
    ended = bench.run()
    assert ended.text.splitlines()[1:] == [
        OLD,
        "legs: 4 restarted with the rollback and are up as before; 4 of their bridge ports are bound to the chip again",
    ]
    assert bench.bound == [("no", 4), ("yes", 4)]


def test_a_link_that_takes_its_time_is_waited_for(bench: Bench) -> None:
    clock = bench.device.clock

    def restarts() -> None:
        bench.device.down |= {lane: {"name": lane, "status": "no-link"} for lane in CAGE[::2]}
        clock.events[clock.now + 20] = lambda: [bench.device.down.pop(lane) for lane in CAGE[::2]]

    ended = bench.run(restarts, settle=60)
    assert ended.text.splitlines()[-1].startswith("legs: 4 restarted with the rollback and are up as before; 4 of ")
    assert clock.events == {}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"status": "no-link"}, "qsfp56-dd-1-3 has no link, before the run 100Gbps"),
        ({"status": "link-ok", "rate": "50Gbps"}, "qsfp56-dd-1-3 runs at 50Gbps, before the run 100Gbps"),
    ],
)
def test_one_that_does_not_come_back_is_reported(bench: Bench, seen: dict[str, str], why: str) -> None:
    lane = {"name": "qsfp56-dd-1-3", **seen}
    ended = bench.run(lambda: bench.device.down.update({"qsfp56-dd-1-3": lane}))
    legs = "qsfp56-dd-1-1, qsfp56-dd-1-3, qsfp56-dd-1-5, qsfp56-dd-1-7"
    printed = f"LEGS NOT RESTORED after the rollback ({legs}): {why}. When they are up, {BY_HAND}"
    assert ended.text.splitlines()[1:] == [OLD, printed]
    up = 4 if seen["status"] == "link-ok" else 3
    assert bench.bound == [("no", up), ("yes", up)], "those that are up are bound"


def test_the_nodes_are_asked_too(bench: Bench) -> None:
    rolled_back: list[bool] = []

    def asked(links: object) -> WitnessReport:
        assert len(list(links)) == 4  # type: ignore[call-overload]
        return WitnessReport((HalfReport("spark2/1", "sees no link"),) if rolled_back else (), ())

    ended = bench.run(lambda: rolled_back.append(True), witness=asked, settle=4)
    assert "): spark2/1: sees no link. When they are up, " in ended.text.splitlines()[-1]


def test_without_the_lock_nothing_is_bound(bench: Bench) -> None:
    lost = "spark1: the lock is now that of run 1 of ben@desk"
    ended = bench.run(lambda: setattr(bench.line, "stopped", lambda: lost))
    assert bench.bound == []
    assert ended.text.splitlines()[-1].startswith("LEGS NOT RESTORED after the rollback (")
    assert f"): {lost}. When they are up, {BY_HAND}" in ended.text


def test_a_fault_in_between_leaves_them_bound(bench: Bench) -> None:
    """By safe mode: the session that held it is closed."""

    def refuse() -> None:
        raise SentenceError("failure: refused")

    bench.at["yes"] = refuse
    ended = bench.run()
    assert bench.bound == [("no", 4), ("yes", 4)]
    assert f"): failure: refused. When they are up, {BY_HAND}" in ended.text.splitlines()[-1]


def test_an_interrupted_run_says_what_remains(bench: Bench) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(interrupt)
    assert bench.device.reported[-2:-1] == ["interrupted; all changes since safe mode was taken are reverted"]
    assert bench.device.reported[-1].startswith("LEGS NOT RESTORED after the rollback (qsfp56-dd-1-1, qsfp56-dd-1-3, ")
    assert f"): interrupted. When they are up, {BY_HAND}" in bench.device.reported[-1]
    assert bench.bound == []


def test_a_rollback_that_restarts_no_cage_concerns_no_leg(bench: Bench) -> None:
    row(bench.device.tables, "qsfp56-dd-1-3")["mtu"] = row(bench.device.tables, "qsfp56-dd-1-1")["mtu"]
    bench.before = copy.deepcopy(bench.device.tables)
    assert bench.run().text.splitlines()[1:] == [OLD]
    assert "/interface/ethernet/monitor" not in bench.device.commands


def test_which_lanes_restart(bench: Bench) -> None:
    todo = bench.todo()
    now = reading(bench.device.tables)
    assert restarted(CRS812, todo.todo.changes, now) == CAGE
    row(bench.device.tables, "sfp56-1")["l2mtu"] = "1584"
    row(bench.device.tables, "qsfp56-dd-1-3")["l2mtu"] = "1584"
    sizes = restarted(CRS812, bench.todo().todo.changes, now)
    assert set(CAGE) < set(sizes), "l2mtu takes every port down"
    assert not [name for name in sizes if name.startswith("ether")]
    assert restarted(CRS812, (), now) == ()


def test_without_lanes_the_switch_is_not_asked(device: Device) -> None:
    session = Talking([])
    assert linked(session, reading(device.tables), ()) == {}
    assert session.heard == []


class Talking:
    """A session that gives rows and keeps what it is sent."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows = rows
        self.heard: list[tuple[str, ...]] = []

    def talk(self, *words: str) -> list[dict[str, str]]:
        self.heard.append(words)
        return self.rows


@pytest.mark.parametrize(
    ("rows", "rates"),
    [
        ([{"name": "qsfp56-dd-1-1", "status": "link-ok", "rate": "1G"}], {"qsfp56-dd-1-1": "1G"}),
        ([{"name": "qsfp56-dd-1-1", "status": "link-ok"}], {"qsfp56-dd-1-1": ""}),
        ([{"name": "qsfp56-dd-1-1", "status": "no-link", "rate": "1G"}], {}),
        ([{"name": "another", "status": "link-ok", "rate": "1G"}, {"status": "link-ok"}], {}),
    ],
)
def test_only_the_lanes_that_were_asked_for_and_have_a_link_count(
    device: Device, rows: list[dict[str, str]], rates: dict[str, str]
) -> None:
    assert linked(Talking(rows), reading(device.tables), ("qsfp56-dd-1-1",)) == rates


def test_a_link_whose_rate_was_not_printed_is_named_all_the_same(device: Device) -> None:
    found = LegRecovery("crs812", reading(device.tables), {"qsfp56-dd-1-1": ""}, (), 0, None, lambda: "")
    assert found._late_legs(Talking([])) == ["qsfp56-dd-1-1 has no link, before the run it had one"]


def test_a_port_that_does_not_read_as_bound_is_reported(bench: Bench) -> None:
    answer = bench.device.answer

    def hear(session: Session, words: tuple[str, ...]) -> list[dict[str, str]]:
        rows = answer(session, words)
        if words[0] == f"{PORT}/print" and bench.bound:
            return [row | {"hw": "false"} if row["interface"] == "qsfp56-dd-1-3" else row for row in rows]
        return rows

    bench.device.answer = hear  # type: ignore[method-assign]
    assert ": their bridge ports do not read hw=yes. When they are up, " in bench.run().text
