"""What is checked between the writes, and when it ends a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.routeros.rollback_timer import LOOK_SECONDS
from switch.executor import TransactionOutcome, execute
from switch.target_state import DeclaredTarget
from switch.transaction import MARGIN_SECONDS, Check, Say, Step, Transaction
from tests.unit.switch.in_memory_switch import Clock, Device
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.rows import asking

OTHER = {"enabled": "true", "current": "false", "user": "eve"}


def prepared(rack: MakeRack, device: Device, **options: Any) -> Transaction:
    goal = DeclaredTarget(*rack())
    before = goal.read(asking(device.tables))
    return Transaction("sparkrack-undo-20260101T000000-0001", goal, before, goal.plan(before), **options)


def run(todo: Transaction, device: Device, before: Callable[[Step], None] = lambda _step: None) -> TransactionOutcome:
    return execute(todo, device.line(), before)


def at(title: str, do: Callable[[], object]) -> Callable[[Step], None]:
    """Does something before the first step of a title."""
    done: list[Step] = []

    def look(step: Step) -> None:
        if step.title.startswith(title) and not done:
            done.append(step)
            do()

    return look


def test_the_hold_is_looked_at_after_every_write_and_before_the_release(rack: MakeRack, device: Device) -> None:
    steps = [step.title for step in prepared(rack, device).steps()]
    released = steps.index("releasing safe mode")
    assert steps[released - 1] == "looking whether safe mode is still ours"
    taken = steps.index("taking safe mode")
    for number, title in enumerate(steps[taken:released], start=taken):
        if title.startswith("writing"):
            ahead = [later for later in steps[number:] if not later.startswith(("writing", "waiting", "binding"))]
            assert ahead[0] == "looking whether safe mode is still ours"


@pytest.mark.parametrize(
    "title", ["looking whether safe mode is ours", "looking whether safe mode is still ours", "waiting for links"]
)
def test_a_hold_that_was_lost_ends_it_before_the_release(rack: MakeRack, device: Device, title: str) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    ended = run(prepared(rack, device), device, at(title, lambda: setattr(device, "safe", OTHER)))
    assert "not ours any more (held by eve)" in ended.text
    assert "another session has taken safe mode, so later writes are not reverted by it" in ended.text
    assert "/safe-mode/release" not in device.commands


def test_another_switch_behind_the_address_ends_it(rack: MakeRack, device: Device) -> None:
    device.second_identity = "other"
    ended = run(prepared(rack, device), device)
    assert "a second session finds another switch" in ended.text
    assert "/safe-mode/release" not in device.commands


def test_a_fuse_that_has_nearly_burnt_down_ends_it(rack: MakeRack, device: Device, clock: Clock) -> None:
    todo = prepared(rack, device, fuse=100)
    ended = run(todo, device, at("logging in again", lambda: clock.sleep(80)))
    assert "stopped at: looking whether there is time left: the rollback timer on the switch acts in 19 s" in ended.text
    assert "/safe-mode/release" not in device.commands
    assert ended.text.splitlines()[-1] == "looked again: the switch is as it was before the run"


def test_the_fuse_is_longer_than_the_run_may_take(rack: MakeRack, device: Device) -> None:
    todo = prepared(rack, device, settle=60)
    waits = sum(1 for batch in todo.todo.batches if batch.settles)
    assert waits == 2
    assert todo.rollback_timer.fuse >= MARGIN_SECONDS + waits * 60
    assert prepared(rack, device, fuse=7).rollback_timer.fuse == 7
    assert todo.armed_for is None


@pytest.mark.parametrize("uptime", ["", "perhaps", None])
def test_without_an_uptime_nothing_is_armed_and_nothing_written(
    rack: MakeRack, device: Device, uptime: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = prepared(rack, device)
    reported = {} if uptime is None else {"uptime": uptime}
    monkeypatch.setattr(
        Device, "_rows_of_menu", lambda self, _session, menu: [reported] if "resource" in menu else self.tables[menu]
    )
    ended = run(todo, device)
    assert ended.text == (
        "stopped at: arming the rollback timer: the switch does not report its uptime, which sets the rollback timer"
    )
    assert "/safe-mode/take" not in device.commands


def test_a_script_the_switch_cannot_read_ends_it_before_the_first_write(
    rack: MakeRack, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.switch.routeros_console.readable", lambda _source: False)
    ended = run(prepared(rack, device), device)
    assert "the switch cannot read the script of the rollback timer" in ended.text
    assert "/safe-mode/take" not in device.commands
    assert device.armed == []


def test_a_large_plan_is_released_in_portions_under_one_rollback_timer(rack: MakeRack, device: Device) -> None:
    assert run(prepared(rack, device, most=20), device).done
    assert device.commands.count("/safe-mode/take") == device.commands.count("/safe-mode/release") == 2
    assert device.commands.count("/system/script/add") == 1


def test_no_step_shows_a_secret(rack: MakeRack, device: Device) -> None:
    goal = DeclaredTarget(*rack(**EVERY_KEY))
    before = goal.read(asking(device.tables))
    todo = Transaction("sparkrack-undo-20260101T000000-0001", goal, before, goal.plan(before))
    secrets = [step.secrets for step in todo.steps() if isinstance(step, Say) and step.secrets]
    assert [[name for name, _ in pairs] for pairs in secrets] == [
        ["authentication-password", "encryption-password"],
        ["password"],
    ]
    assert all(isinstance(step, Say | Check) and step.title for step in todo.steps())


def test_safe_mode_is_taken_only_after_the_timer_has_run(rack: MakeRack, device: Device, clock: Clock) -> None:
    begin = clock.now
    counts: list[int] = []
    taken = at("taking safe mode", lambda: counts.extend(map(device.runs, device.tables["/system/scheduler"])))
    assert run(prepared(rack, device), device, taken).done
    assert counts == [1]
    (armed,) = device.added.values()
    assert armed - begin < LOOK_SECONDS, "the wait is that for one run of the schedule"


@pytest.mark.parametrize("version", ["7.24.4 (stable)", "7.24 (stable)"])
def test_a_timer_that_never_runs_ends_it_before_the_first_write(rack: MakeRack, device: Device, version: str) -> None:
    device.schedules_run = False
    device.tables["/system/resource"][0]["version"] = version
    ended = run(prepared(rack, device), device)
    first, last = ended.text.splitlines()
    assert first.startswith("stopped at: waiting until the rollback timer has run: the schedule of the rollback timer")
    assert f"within 10 s on this device with RouterOS {version.split()[0]}, so nothing would undo" in first
    assert "sparkrack upgrade switch --packages FOLDER" in first
    assert last == "looked again: the switch is as it was before the run"
    assert "/safe-mode/take" not in device.commands
    assert [command for command in device.commands if command.endswith("/set")] == []
    assert device.armed == []


def test_a_safe_mode_that_overflowed_names_who_wrote(rack: MakeRack, device: Device) -> None:
    """RouterOS ends it without a word when another administrator's writes fill its history."""

    def overflow() -> None:
        device.holder = None
        device.tables["/system/history"] = [{"by": "eve"}] * 95 + [{"by": "sparkrack"}] * 5

    ended = run(prepared(rack, device), device, at("reading everything back", overflow))
    first, last = ended.text.splitlines()
    assert "not ours any more (held by no session): RouterOS ends it, and undoes nothing, when more than 100" in first
    assert "another administrator writes at the same time (history: 95 of eve, 5 of sparkrack)" in first
    assert first.endswith("; safe mode has ended by itself, so what was written under it is not reverted by it")
    assert last == (
        "looked again: the switch is as declared, although this run did not release safe mode: it ended by itself, and "
        "undid nothing"
    )
    assert not ended.done
    assert device.armed == []


def test_a_switch_that_restarted_under_safe_mode_and_kept_what_was_written(
    rack: MakeRack, device: Device, clock: Clock
) -> None:
    def restart() -> None:
        device.holder = None
        device.main.close()
        device.started = clock.now - 3

    ended = run(prepared(rack, device), device, at("reading everything back", restart))
    assert not ended.done
    assert ended.text.splitlines()[-1] == (
        "looked again: the switch is as declared, although safe mode was not released: the switch has restarted "
        "meanwhile, and kept what was written"
    )
