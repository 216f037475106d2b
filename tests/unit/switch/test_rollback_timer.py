"""The timer on the switch: what is armed, when it acts, and how it is taken off."""

from __future__ import annotations

import copy

import pytest

from core.routeros.errors import SentenceError
from core.routeros.menus import OLDEST
from core.routeros.rollback_disarm import armed_timer_names, disarm, disarm_others
from core.routeros.rollback_timer import PREFIX, RollbackTimer, armed_timers
from switch.plan import plan
from tests.unit.switch import routeros_console as console
from tests.unit.switch.in_memory_switch import Device
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.rows import carry_out, meaning, reading

NAME = f"{PREFIX}20260101T000000-0001"


@pytest.fixture
def timer(rack: MakeRack, device: Device) -> RollbackTimer:
    return RollbackTimer(NAME, 120, plan(*rack(**EVERY_KEY), reading(device.tables)), OLDEST)


def arm(device: Device, timer: RollbackTimer) -> None:
    line = device.line()
    for sentence in timer.arm(device.uptime):
        line.talk(*sentence)


def test_the_script_is_there_before_the_schedule(timer: RollbackTimer) -> None:
    assert [sentence[0] for sentence in timer.arm(0)] == ["/system/script/add", "/system/scheduler/add"]


def test_it_acts_when_the_fuse_has_burnt_down_and_is_gone_then(device: Device, timer: RollbackTimer) -> None:
    before = copy.deepcopy(device.tables)
    arm(device, timer)
    carry_out(device.tables, timer.todo.changes)
    changed = meaning(device.tables)
    device.pass_time(119)
    assert meaning(device.tables) == changed, "a second too early"
    device.pass_time(2)
    assert meaning(device.tables) == meaning(before)
    assert device.armed == []


def test_it_acts_at_once_after_a_restart(device: Device, timer: RollbackTimer) -> None:
    """Less uptime than when it was armed: the run that could disarm it is gone."""
    before = copy.deepcopy(device.tables)
    arm(device, timer)
    carry_out(device.tables, timer.todo.changes)
    device.clock.now = 5
    device.pass_time(1)
    assert meaning(device.tables) == meaning(before)
    assert device.armed == []


def test_it_can_be_fired_at_once(device: Device, timer: RollbackTimer) -> None:
    before = copy.deepcopy(device.tables)
    arm(device, timer)
    carry_out(device.tables, timer.todo.changes)
    device.line().talk(*timer.fire)
    assert meaning(device.tables) == meaning(before)


def test_it_may_do_all_that_its_script_does(timer: RollbackTimer) -> None:
    """Users and groups need `policy`, everything else `write`; secrets are not read."""
    for sentence in timer.arm(0):
        (policy,) = (word.split("=")[2].split(",") for word in sentence if word.startswith("=policy="))
        assert {"read", "write", "policy", "test"} <= set(policy)


def test_all_of_it_can_be_read_by_a_console(timer: RollbackTimer) -> None:
    (source,) = (word for word in timer.arm(0)[0] if word.startswith("=source="))
    commands = console.parse(source.removeprefix("=source="))
    assert [(command.path, command.verb) for command in commands[-2:]] == [
        ("/system/scheduler", "remove"),
        ("/system/script", "remove"),
    ]


def test_no_secret_is_left_on_the_switch(timer: RollbackTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER_PASSWORD", "swordfish")
    assert "swordfish" not in repr(timer.arm(0))
    assert "READER_PASSWORD" not in repr(timer.arm(0))


def both(device: Device, *names: str) -> None:
    for number, name in enumerate(names):
        device.tables["/system/script"].append({".id": f"*{number}", "name": name, "source": ""})
        device.tables["/system/scheduler"].append({".id": f"*{number}", "name": name, "on-event": ""})


def test_one_run_is_disarmed_and_no_other(device: Device) -> None:
    both(device, NAME, f"{PREFIX}20260101T000000-0003", "mine")
    line = device.line()
    disarm(line, NAME)
    assert device.armed == [f"{PREFIX}20260101T000000-0003", "mine"] * 2
    schedules = [words[0] for words in device.heard if words[0].endswith("/remove")]
    assert schedules == ["/system/scheduler/remove", "/system/script/remove"], "the schedule first"
    disarm(line, NAME)  # gone already


def test_a_timer_that_cannot_be_removed_is_an_error_and_one_that_has_gone_meanwhile_is_not(device: Device) -> None:
    both(device, NAME)
    line = device.line()
    device.main.trap = lambda words: words[0] == "/system/scheduler/remove"
    with pytest.raises(SentenceError, match="refused"):
        disarm(line, NAME)
    assert device.armed == [NAME] * 2

    def acts(words: tuple[str, ...]) -> bool:
        if words[0] == "/system/scheduler/remove":
            device.tables["/system/scheduler"].clear()
            return True
        return False

    device.main.trap = acts
    disarm(line, NAME)
    assert device.armed == []


def test_what_earlier_runs_left_is_found_and_said(device: Device) -> None:
    both(device, NAME, "mine")
    device.tables["/system/script"].append({".id": "*9", "name": f"{PREFIX}20260101T000000-0002", "source": ""})
    line = device.line()
    assert armed_timer_names(line) == (NAME, f"{PREFIX}20260101T000000-0002")
    disarm_others(line)
    assert armed_timer_names(line) == ()
    assert device.armed == ["mine", "mine"]
    assert [text.split(" left ")[1].split(" on ")[0] for text in device.reported] == [
        NAME,
        f"{PREFIX}20260101T000000-0002",
    ]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("sparkrack-undo-20261119T101112-0a1b", True),
        ("sparkrack-undo-20261119T101112-0a1b-restore", True),
        ("sparkrack-undo-accept-0a1b2c3d", True),
        ("sparkrack-undo-notes", False),
        ("sparkrack-undo-20261119T101112-0a1b-mine", False),
        ("my-sparkrack-undo-20261119T101112-0a1b", False),
        ("sparkrack-undo-", False),
    ],
)
def test_only_what_a_run_names_is_a_rollback_timer(device: Device, name: str, ours: bool) -> None:
    both(device, name)
    line = device.line()
    free = {"/safe-mode": [{"enabled": "false"}]}
    assert armed_timer_names(line) == armed_timers(reading(device.tables | free)) == ((name,) if ours else ())
    disarm_others(line)
    assert device.armed == ([] if ours else [name, name])
