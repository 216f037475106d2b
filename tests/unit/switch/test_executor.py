"""Whole transactions against a switch in memory: whatever goes wrong wherever, the switch ends in its old state
or in its new one, and the user is reported which."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from core.routeros.errors import RefusedError, SwitchError
from core.routeros.rollback_timer import PREFIX
from switch.executor import TransactionOutcome, disarmed, execute
from switch.target_state import DeclaredTarget
from switch.transaction import Say, Step, Transaction
from tests.unit.switch.in_memory_switch import Clock, Device
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.rows import Tables, asking, meaning

NAME = f"{PREFIX}20260101T000000-0001"
OLD = "looked again: the switch is as it was before the run"
BUT_A_USER = (
    "looked again: nothing of this run is left on the switch, which is not wholly as before: a user it removed comes"
)
NEW = "looked again: the switch is as declared, the release came through"


@pytest.fixture(autouse=True)
def _set_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNMP_A", "SNMP_E", "READER_PASSWORD"):
        monkeypatch.setenv(name, f"swordfish-{name}")


def prepared(rack: MakeRack, device: Device, keys: dict[str, Any] | None = None, **options: Any) -> Transaction:
    goal = DeclaredTarget(*rack(**(keys or {})))
    before = goal.read(asking(device.tables))
    return Transaction(NAME, goal, before, goal.plan(before), **options)


def run(
    transaction: Transaction, device: Device, show: Callable[[Step], None] = lambda _step: None
) -> TransactionOutcome:
    return execute(transaction, device.line(), show)


def declared(transaction: Transaction, tables: Tables) -> bool:
    return not transaction.goal.plan(transaction.goal.read(asking(tables))).batches


def test_a_run_that_goes_well(rack: MakeRack, device: Device) -> None:
    todo = prepared(rack, device)
    assert run(todo, device) == TransactionOutcome(True, "the switch is as declared")
    assert declared(todo, device.tables)
    assert device.armed == []
    assert device.holder is None
    writes = [command for command in device.commands if not command.endswith(("/print", "/monitor"))]
    assert writes == [
        "/system/script/add",
        "/system/scheduler/add",
        "/safe-mode/take",
        *["/interface/ethernet/set"] * 2,
        *["/interface/bridge/port/set"] * 2,
        "/interface/ethernet/set",
        *["/interface/bridge/port/set"] * 2,
        "/system/identity/set",
        "/safe-mode/release",
        "/system/scheduler/remove",
        "/system/script/remove",
    ]


def test_every_key_at_once_goes_well(rack: MakeRack, device: Device) -> None:
    device.tables["/system/script"].append({".id": "*1", "name": "mine", "source": "/x add"})
    todo = prepared(rack, device, dict(EVERY_KEY))
    ended = run(todo, device)
    assert ended.done, ended.text
    assert declared(todo, device.tables)
    assert device.armed == []


def faulty(words: str, number: int) -> Callable[[tuple[str, ...]], bool]:
    """True at the given one of the sentences that begin with `words`."""
    seen = iter(range(10_000))
    return lambda sentence: sentence[0].startswith(words) and next(seen) == number


def sentences(rack: MakeRack, clock: Clock, keys: dict[str, Any], most: int) -> range:
    """The numbers of the sentences of a run that goes well; of a long one, some of them."""
    device = Device(clock)
    assert run(prepared(rack, device, keys, most=most), device).done
    return range(0, len(device.heard), 17 if keys else 3)


CASES = pytest.mark.parametrize(("keys", "most"), [({}, 20), (dict(EVERY_KEY), 40)], ids=["short", "every key"])
"""Both take two portions."""


def judged(device: Device, before: Tables, todo: Transaction, ended: TransactionOutcome, where: str) -> None:
    """What the user was reported is what is so, and nothing is left on the switch."""
    assert "swordfish" not in ended.text
    printed = ended.text.splitlines()[-1]
    is_lost = LOST in ended.text
    assert ended.done == (printed == NEW and not is_lost), (where, ended.text)
    if printed == NEW:
        assert is_lost or ended.text.startswith("error after the last change, at: "), where
        assert declared(todo, device.tables), where
    else:
        # A removed user comes back disabled; `meaning` leaves that out.
        assert printed == OLD or printed.startswith(BUT_A_USER) or len(ended.text.splitlines()) == 1, (
            where,
            ended.text,
        )
        assert meaning(device.tables) == meaning(before), (where, ended.text)
    assert device.armed == [], where
    assert device.holder is None, where


@CASES
def test_whatever_is_refused_leaves_the_old_state(
    rack: MakeRack, clock: Clock, keys: dict[str, Any], most: int
) -> None:
    for number in sentences(rack, clock, keys, most):
        device = Device(clock)
        before = copy.deepcopy(device.tables)
        todo = prepared(rack, device, keys, most=most)
        line = device.line()
        device.main.trap = faulty("/", number)
        ended = execute(todo, line)
        judged(device, before, todo, ended, f"{number}: {device.commands[-1]}")
        if "/safe-mode/release" not in device.commands[:-1]:
            assert NEW not in ended.text


@CASES
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("linger", [False, True])
def test_wherever_the_connection_breaks_the_user_is_reported_what_is_so(
    rack: MakeRack, clock: Clock, keys: dict[str, Any], most: int, when: str, linger: bool
) -> None:
    for number in sentences(rack, clock, keys, most):
        device = Device(clock)
        before = copy.deepcopy(device.tables)
        todo = prepared(rack, device, keys, most=most)
        line = device.line()
        hit = faulty("/", number)
        device.main.lose = lambda words, hit=hit: when if hit(words) else ""  # type: ignore[misc]
        device.linger = linger
        clock.events = {clock.now + 3: device.settle} if linger else {}
        judged(device, before, todo, execute(todo, line), f"{number}: {device.heard[-1:]}")


def test_a_switch_that_reads_as_declared_before_its_links_were_checked_is_not_a_success(
    rack: MakeRack, device: Device
) -> None:
    """Another session takes safe mode, so nothing is reverted: the rows are as declared, but the run did not finish."""
    todo = prepared(rack, device)

    def spoil(step: Step) -> None:
        if step.title == "logging in again":
            device.holder, device.safe = None, {"enabled": "false", "current": "false"}
            raise SwitchError("the switch is gone")

    ended = run(todo, device, spoil)
    assert ended.text.startswith("stopped at: logging in again: the switch is gone")
    assert not ended.done


def test_a_second_portion_that_fails_takes_the_first_along(rack: MakeRack, device: Device) -> None:
    before = copy.deepcopy(device.tables)
    todo = prepared(rack, device, most=20)
    line = device.line()
    device.main.trap = lambda words: words[:2] == ("/system/identity/set", "=name=crs812")
    ended = execute(todo, line)
    assert device.commands.count("/safe-mode/release") == 1
    assert "writing /system/identity" in ended.text
    assert "all changes since safe mode was taken are reverted" in ended.text
    assert ended.text.splitlines()[-1] == OLD
    assert meaning(device.tables) == meaning(before)
    assert device.armed == []


def test_a_switch_that_cannot_be_reached_again_undoes_it_by_itself(rack: MakeRack, device: Device) -> None:
    before = copy.deepcopy(device.tables)
    todo = prepared(rack, device)
    line = device.line()

    def cut(words: tuple[str, ...]) -> str:
        if words[0] != "/safe-mode/release":
            return ""
        device.unreachable = SwitchError("no route to host")
        return "after"

    device.main.lose = cut
    ended = execute(todo, line)
    assert "ROLLBACK NOT PROVEN: the switch could not be read again (no route to host)" in ended.text
    assert NAME in ended.text
    assert declared(todo, device.tables)
    fuse = todo.rollback_timer.fuse
    device.pass_time(fuse / 2)
    assert declared(todo, device.tables), "not before its time"
    device.pass_time(fuse)
    assert meaning(device.tables) == meaning(before)
    assert device.armed == [], "it removes itself"


def test_a_session_the_switch_still_believes_in_is_not_taken_for_the_old_state(rack: MakeRack, device: Device) -> None:
    todo = prepared(rack, device)
    line = device.line()
    device.linger = True
    device.main.lose = lambda words: "before" if words[0] == "/system/identity/set" else ""
    ended = execute(todo, line)
    assert "ROLLBACK NOT PROVEN" in ended.text
    assert "safe mode is still held by sparkrack" in ended.text
    assert device.armed, "it stays armed"


@pytest.mark.parametrize("title", ["keeping a backup", "arming the rollback timer"])
def test_before_anything_is_written_nothing_is_to_be_proven(rack: MakeRack, device: Device, title: str) -> None:
    before = copy.deepcopy(device.tables)

    def keep(_line: object) -> None:
        if title == "keeping a backup":
            raise SwitchError("disk full")

    todo = prepared(rack, device, keep=keep)
    line = device.line()
    device.main.trap = lambda words: words[0] == "/system/script/add"
    ended = execute(todo, line)
    assert ended.text.startswith(f"stopped at: {title}: ")
    assert meaning(device.tables) == meaning(before)
    assert device.armed == []


def interrupting(title: str) -> Callable[[Step], None]:
    def show(step: Step) -> None:
        if step.title.startswith(title):
            raise KeyboardInterrupt

    return show


@pytest.mark.parametrize("title", ["writing /system/identity", "waiting for links", "reading everything back"])
def test_an_interrupted_run_takes_back_and_obeys(rack: MakeRack, device: Device, title: str) -> None:
    before = copy.deepcopy(device.tables)
    todo = prepared(rack, device)
    line = device.line()
    with pytest.raises(KeyboardInterrupt):
        execute(todo, line, interrupting(title))
    assert device.reported[-1] == "interrupted; all changes since safe mode was taken are reverted"
    device.pass_time(todo.rollback_timer.fuse + 1)
    assert meaning(device.tables) == meaning(before)
    assert device.armed == []


def test_interrupted_after_the_release_the_rollback_timer_takes_back(rack: MakeRack, device: Device) -> None:
    before = copy.deepcopy(device.tables)
    todo = prepared(rack, device)
    line = device.line()
    with pytest.raises(KeyboardInterrupt):
        execute(todo, line, interrupting("logging in again after the release"))
    assert declared(todo, device.tables)
    device.pass_time(todo.rollback_timer.fuse + 1)
    assert meaning(device.tables) == meaning(before)


def test_removed_scripts_count_for_the_old_state(rack: MakeRack, device: Device) -> None:
    """Nothing else differs: without looking at them, any state would be the old one."""
    device.tables["/system/script"].append({".id": "*1", "name": "mine", "source": "/x add", "policy": "read"})
    before = copy.deepcopy(device.tables)
    todo = prepared(rack, device, {"cages": {}, "nodes": {"spark1": None}, "identity": None, "purge": ["scripts"]})
    assert len(todo.todo.changes) == 1
    line = device.line()
    device.main.lose = lambda words: "after" if words[0] == "/safe-mode/release" else ""
    ended = execute(todo, line)
    assert ended.text.splitlines()[-1] == NEW
    assert meaning(device.tables) != meaning(before)


def test_a_secret_is_fetched_when_it_is_sent_and_never_shown(rack: MakeRack, device: Device) -> None:
    shown: list[Step] = []
    todo = prepared(rack, device, dict(EVERY_KEY))
    assert run(todo, device, shown.append).done
    assert ("/user/add", "=password=swordfish-READER_PASSWORD") in [(w[0], w[-1]) for w in device.heard]
    assert "swordfish" not in repr([step for step in shown if isinstance(step, Say)])


def test_a_secret_that_cannot_be_had_stops_the_run_before_its_first_step(
    rack: MakeRack, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(device.tables)
    monkeypatch.delenv("READER_PASSWORD")
    shown: list[Step] = []
    todo = prepared(rack, device, dict(EVERY_KEY))
    ended = execute(todo, device.line(), shown.append)
    assert ended.text.startswith("stopped at: beginning: environment variable READER_PASSWORD is not set")
    assert (ended.done, shown) == (False, [])
    assert device.tables == before


def test_what_an_earlier_run_left_armed_is_disarmed_first(rack: MakeRack, device: Device) -> None:
    old = f"{PREFIX}20260101T000000-0002"
    device.tables["/system/script"].append({".id": "*7", "name": old, "source": "/x add"})
    device.tables["/system/scheduler"].append({".id": "*7", "name": old, "on-event": ""})
    ended = run(prepared(rack, device, dict(EVERY_KEY)), device)
    assert ended.done, ended.text
    assert device.armed == []
    assert device.reported[0].startswith(f"an earlier run was not finished and left {old} on the switch")
    assert device.commands.index("/system/script/remove") < device.commands.index("/safe-mode/take")


@pytest.fixture
def left(rack: MakeRack, device: Device) -> Transaction:
    """A run that was lost after its release; its rollback timer is still armed."""
    todo = prepared(rack, device)
    line = device.line()
    for step in todo.steps():
        if step.title == "disarming the rollback timer":
            break
        if isinstance(step, Say):
            line.talk(*step.sentence)
        else:
            step.test(line)
    assert device.armed == [NAME, NAME]
    device.sessions = 0  # the next session is the one that a test disturbs
    return todo


def test_what_an_interrupted_run_left_is_planned_to_be_disarmed(left: Transaction, device: Device) -> None:
    found = left.goal.plan(left.goal.read(asking(device.tables)))
    assert (found.batches, found.armed, found.empty) == ((), (NAME,), False)
    assert found.lines == (
        "rollback timer: disturbs nothing",
        f"  disarm {NAME}, which an interrupted run left: it would undo that run",
    )
    assert disarmed(left.goal, device.line(), found.armed) == TransactionOutcome(
        True, f"disarmed {NAME}; the switch is as declared"
    )
    assert device.armed == []
    assert left.goal.plan(left.goal.read(asking(device.tables))).empty


def test_while_another_session_holds_safe_mode_nothing_is_planned(left: Transaction, device: Device) -> None:
    device.tables["/safe-mode"] = [{"enabled": "true", "current": "false", "user": "ana", "owner": "winbox"}]
    with pytest.raises(
        RefusedError, match=f"{NAME} is armed and ana \\(winbox\\) holds safe mode: a run is in progress"
    ):
        left.goal.plan(left.goal.read(asking(device.tables)))
    device.safe = device.tables["/safe-mode"][0]
    ended = disarmed(left.goal, device.line(), (NAME,))
    assert not ended.done
    assert "safe mode is held by ana (winbox)" in ended.text
    assert device.armed == [NAME, NAME]


def test_a_timer_that_acts_before_it_is_disarmed_is_reported(left: Transaction, device: Device) -> None:
    line = device.line()

    def acts(words: tuple[str, ...]) -> bool:
        if words[0] == "/system/scheduler/remove":
            device.run(NAME)
        return False

    device.main.trap = acts
    ended = disarmed(left.goal, line, (NAME,))
    assert not ended.done
    assert "the switch is no longer as declared: the rollback timer acted first; run again" in ended.text


def test_after_the_timer_was_fired_in_vain_it_is_not_promised_to_act(rack: MakeRack, device: Device) -> None:
    """It has removed itself; what is true then is that nothing acts any more, and what the log says of it."""
    todo = prepared(rack, device)

    def fails(name: str) -> None:
        for path in ("/system/scheduler", "/system/script"):
            device.tables[path] = [row for row in device.tables[path] if row["name"] != name]
        device.log = [
            {"time": "10:00:00", "message": "sparkrack: line 1 of the undo failed"},
            {"time": "10:00:01", "message": f"sparkrack: {name} undoes its run"},
            {"time": "10:00:02", "message": "sparkrack: line 24 of the undo failed"},
            {"time": "10:00:03", "message": "device changed by api"},
        ]

    device.run = fails  # type: ignore[method-assign]

    def spoil(step: Step) -> None:
        if step.title == "reading everything back after the release":
            device.tables["/interface/ethernet"][2]["mtu"] = "1501"

    ended = run(todo, device, spoil)
    assert not ended.done
    assert (
        f"The rollback timer ({NAME}) was fired by this run and is gone: nothing acts any more by itself; the switch's "
        "log: 10:00:02 sparkrack: line 24 of the undo failed."
    ) in ended.text
    assert "undoes this run in" not in ended.text


LOST = "spark1: the lock is now that of run 1 of ben@desk"


@CASES
def test_wherever_the_lock_is_lost_nothing_more_is_sent(
    rack: MakeRack, clock: Clock, keys: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what takes back. What was released is left to the rollback timer: another run may be at work by now."""
    for number in sentences(rack, clock, keys, most):
        device = Device(clock)
        before = copy.deepcopy(device.tables)
        todo = prepared(rack, device, keys, most=most)
        line = device.line()
        line.stopped = lambda number=number, device=device: LOST if len(device.heard) >= number else ""  # type: ignore[misc]
        with monkeypatch.context() as patch:
            patch.setattr(device, "run", lambda _name: pytest.fail("the rollback timer was fired"))
            ended = execute(todo, line)
        assert f"{LOST}; nothing more is sent" in ended.text, number
        assert set(device.commands[number:]) <= {"/safe-mode/print", "/safe-mode/unroll"}
        assert device.holder is None
        if "ROLLBACK NOT PROVEN" in ended.text:
            assert f"The schedule of the rollback timer ({NAME}) is on the switch: it undoes this run in" in ended.text
            device.pass_time(todo.rollback_timer.fuse + 1)
            assert meaning(device.tables) == meaning(before), number
            assert device.armed == []
        else:
            judged(device, before, todo, ended, f"{number}")


def test_a_timer_is_not_disarmed_once_the_lock_is_lost(left: Transaction, device: Device) -> None:
    line = device.line()
    line.stopped = lambda: LOST
    ended = disarmed(left.goal, line, (NAME,))
    assert ended.text == f"rollback timer not disarmed: {LOST}; nothing more is sent; run again"
    assert device.armed == [NAME, NAME]
