"""The order of a transaction, against a switch in memory that knows safe mode and lets links take their
time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from switch.plan import plan
from switch.sentences import Sentence
from switch.transaction import Check, CheckError, Say, Step, Transaction, holder

from .rows import MakeRack, Tables, factory, reading


class Switch:
    """A Line to tables in memory."""

    def __init__(self) -> None:
        self.tables: Tables = factory()
        self.kept: Tables = copy.deepcopy(self.tables)
        self.safe: dict[str, str] = {"enabled": "false", "current": "false"}
        self.said: list[str] = []
        self.commands: list[str] = []
        self.down: dict[str, dict[str, str]] = {}
        self.second_identity: str | None = None

    def talk(self, *words: str) -> list[dict[str, str]]:
        self.commands.append(words[0])
        menu, _, verb = words[0].rpartition("/")
        given = dict(word[1:].split("=", 1) for word in words[1:])
        if menu == "/safe-mode" and verb == "print":
            return [dict(self.safe)]
        if verb == "take":
            self.safe = {"enabled": "true", "current": "true", "user": "me"}
        elif verb == "release":
            self.safe = {"enabled": "false", "current": "false"}
            self.kept = copy.deepcopy(self.tables)
        elif verb == "monitor":
            return [self._monitored(id_) for id_ in given["numbers"].split(",")]
        elif verb == "print":
            return [dict(row) for row in self.tables[menu]]
        elif verb == "set":
            ids = given.pop(".id", "").split(",")
            for row in self.tables[menu]:
                if row.get(".id", "") in ids:
                    row.update(given)
        else:
            raise AssertionError(words)
        return []

    def _monitored(self, id_: str) -> dict[str, str]:
        (row,) = (row for row in self.tables["/interface/ethernet"] if row[".id"] == id_)
        name = row["name"]
        forced = row["auto-negotiation"] == "no"
        fine = {"name": name, "status": "link-ok", "rate": "100Gbps"} if forced else {"name": name, "status": "no-link"}
        return self.down.get(name, fine)

    @contextmanager
    def second(self) -> Iterator[Switch]:
        other = copy.copy(self)
        if self.second_identity:
            other.tables = self.tables | {"/system/identity": [{"name": self.second_identity}]}
        other.commands = []
        yield other

    def say(self, text: str) -> None:
        self.said.append(text)


def carry_out(steps: Iterator[Step], switch: Switch, before: Callable[[Step], Any] = lambda _step: None) -> None:
    for step in steps:
        before(step)
        match step:
            case Say(sentence=sentence):
                switch.talk(*sentence)
            case Check(test=test):
                test(switch)


@pytest.fixture
def switch() -> Switch:
    return Switch()


class Clock:
    """A clock that sleeping moves, and what happens at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: dict[float, Callable[[], None]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in [due for due in self.events if due <= self.now]:
            self.events.pop(due)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("switch.transaction.time", clock)
    return clock


def prepared(rack: MakeRack, switch: Switch, **options: Any) -> Transaction:
    rack_, declared = rack()
    return Transaction(rack_, declared, plan(rack_, declared, reading(switch.tables)), **options)


def done(rack: MakeRack, switch: Switch) -> bool:
    return plan(*rack(), reading(switch.kept)).batches == ()


def test_one_hold_around_all_writes(rack: MakeRack, switch: Switch) -> None:
    carry_out(prepared(rack, switch).steps(), switch)
    assert done(rack, switch)
    changing = [command for command in switch.commands if not command.endswith(("/print", "/monitor"))]
    assert changing == [
        "/safe-mode/take",
        *["/interface/ethernet/set"] * 3,
        "/system/identity/set",
        "/safe-mode/release",
    ]


def test_a_large_plan_is_released_in_portions(rack: MakeRack, switch: Switch) -> None:
    carry_out(prepared(rack, switch, most=20).steps(), switch)
    assert done(rack, switch)
    assert switch.commands.count("/safe-mode/take") == switch.commands.count("/safe-mode/release") == 2


def test_what_an_earlier_portion_released_is_kept(rack: MakeRack, switch: Switch) -> None:
    def lose_the_second_hold(step: Step) -> None:
        if isinstance(step, Say) and step.title.startswith("writing /interface/ethernet qsfp56-dd-2-1"):
            switch.safe = {"enabled": "true", "current": "false", "user": "eve"}

    with pytest.raises(CheckError, match=r"not ours any more \(held by eve\)"):
        carry_out(prepared(rack, switch, most=20).steps(), switch, lose_the_second_hold)
    kept = {row["default-name"]: row for row in switch.kept["/interface/ethernet"]}
    assert kept["qsfp56-dd-1-1"]["speed"] == "100G-baseCR2"
    assert "speed" not in kept["qsfp56-dd-2-1"]


@pytest.mark.parametrize("number", range(5))
def test_a_hold_lost_after_any_write_is_noticed_before_the_next(rack: MakeRack, switch: Switch, number: int) -> None:
    written: list[Sentence] = []

    def lose_it(step: Step) -> None:
        if isinstance(step, Check) and len(written) > number:
            switch.safe = {"enabled": "false", "current": "false"}
        if isinstance(step, Say):
            written.append(step.sentence)

    with pytest.raises(CheckError, match="not ours any more"):
        carry_out(prepared(rack, switch).steps(), switch, lose_it)
    assert len(written) == number + 1
    assert ("/safe-mode/release",) not in written


def test_somebody_else_holds_safe_mode(rack: MakeRack, switch: Switch) -> None:
    switch.safe = {"enabled": "true", "current": "false", "user": "eve", "owner": "api 10.0.0.9"}
    with pytest.raises(CheckError, match=r"safe mode is held by eve \(api 10\.0\.0\.9\); nothing was written"):
        carry_out(prepared(rack, switch).steps(), switch)
    assert switch.commands == ["/safe-mode/print"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"enabled": "false"}, "nobody"),
        ({"enabled": "true"}, "somebody"),
        ({"enabled": "true", "user": "eve"}, "eve"),
        ({"enabled": "true", "owner": "tty"}, "somebody (tty)"),
    ],
)
def test_who_holds_it(row: dict[str, str], said: str) -> None:
    assert holder(row) == said


@pytest.mark.parametrize("answer", [{}, {"enabled": "perhaps", "current": "perhaps"}])
def test_an_unclear_hold_is_no_hold(rack: MakeRack, switch: Switch, answer: dict[str, str]) -> None:
    def blur(step: Step) -> None:
        if isinstance(step, Check) and step.title.startswith("looking whether safe mode is ours"):
            switch.safe = answer

    with pytest.raises(CheckError):
        carry_out(prepared(rack, switch).steps(), switch, blur)
    assert "/interface/ethernet/set" not in switch.commands


def test_links_are_waited_for_and_told_of_now_and_then(rack: MakeRack, switch: Switch, clock: Clock) -> None:
    switch.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "initializing"}
    clock.events[25] = switch.down.clear
    carry_out(prepared(rack, switch).steps(), switch)
    assert done(rack, switch)
    assert clock.now == 25
    assert [line.split(":")[0] for line in switch.said] == [
        "waiting for links, 10 s",
        "waiting for links, 20 s",
    ]


def test_a_hold_lost_while_links_are_waited_for_ends_the_waiting(rack: MakeRack, switch: Switch, clock: Clock) -> None:
    switch.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    clock.events[3] = lambda: switch.safe.update(current="false")
    with pytest.raises(CheckError, match="not ours any more"):
        carry_out(prepared(rack, switch).steps(), switch)
    assert clock.now == 3


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"status": "no-link"}, "is no-link, should be up at 100G"),
        ({"status": "link-ok", "rate": "50Gbps"}, "is link-ok at 50Gbps, should be up at 100G"),
        ({"status": "link-ok"}, "is link-ok at no rate, should be up at 100G"),
        ({"status": "link-ok", "rate": "unknown"}, "is link-ok at unknown, should be up at 100G"),
        ({"name": "another"}, "is not reported, should be up at 100G"),
    ],
)
def test_a_leg_that_is_not_up_ends_it(
    rack: MakeRack, switch: Switch, clock: Clock, row: dict[str, str], said: str
) -> None:
    switch.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3"} | row
    with pytest.raises(CheckError) as raised:
        carry_out(prepared(rack, switch).steps(), switch)
    assert f"after 60 s leg crs812/qsfp56-dd-1-3 (lanes 3-4, to spark2/1) {said}" in str(raised.value)
    assert clock.now == 60
    assert switch.kept == factory()


def test_another_switch_behind_the_address_ends_it(rack: MakeRack, switch: Switch) -> None:
    switch.second_identity = "other"
    with pytest.raises(CheckError, match="a second session finds another switch"):
        carry_out(prepared(rack, switch).steps(), switch)
    assert switch.kept == factory()


def test_a_change_made_meanwhile_ends_it_before_the_first_write(rack: MakeRack, switch: Switch) -> None:
    todo = prepared(rack, switch)
    next(row for row in switch.tables["/interface/ethernet"] if row["name"] == "qsfp56-dd-1-1")["mtu"] = "2000"
    with pytest.raises(CheckError, match=r"does not read as expected at /interface/ethernet qsfp56-dd-1-1$"):
        carry_out(todo.steps(), switch)
    assert "/interface/ethernet/set" not in switch.commands
