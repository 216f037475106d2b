"""`sparkrack apply` that does not come to its end: on which machines it stops, and what it says and leaves."""

from __future__ import annotations

import json

from sparkrack.terminal.apply_screen import STAYS
from tests.unit.cli.apply_cases import Runs, of
from tests.unit.cli.rack_folder import NAMES


def test_a_canary_that_fails_ends_it(applied: Runs) -> None:
    world, ended = applied["canary fails"]
    assert ended.code == 1
    assert {line.split()[0] for line in world.sent} == {"spark1"}
    assert [world.things(name) for name in NAMES] == [["old", "old"]] * 3
    assert not world.lock.exists()
    lines = ended.stdout.splitlines()
    assert any("it is \\x1b]0;broken" in line for line in lines), "what the machine said, and harmless"
    assert "the old memory is back" in ended.stdout
    assert "executed" not in ended.stdout, "pyinfra's own verdict"
    assert lines[-4:-1] == [
        f"spark1: failed in the middle of memory: Turn it off; {STAYS}",
        "spark2: nothing was changed",
        "spark3: nothing was changed",
    ]
    assert lines[-1].startswith("failed; journal: ")


def test_one_that_refuses_when_it_is_to_begin(applied: Runs) -> None:
    world, ended = applied["late"]
    assert ended.code == 1
    lines = ended.stdout.splitlines()
    assert "spark2: refused: memory: it is in the way now" in lines
    assert "spark2: refused at memory: Turn it off; nothing of that was done" in lines
    assert lines[-1].startswith("failed; journal: ")
    assert (world.sent, world.lock.exists()) == ([], False)


def test_the_first_failure_stops_everything_after_its_wave(applied: Runs) -> None:
    world, ended = applied["fails"]
    assert ended.code == 1
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["new", "old"]]
    assert not [line for line in world.sent if "rdma" in line]
    assert not world.lock.exists()
    report = json.loads(ended.stdout)
    assert report["result"] == "failed"
    assert [tuple(one.values()) for one in report["hosts"]] == [
        ("spark1", 1, "", ""),
        ("spark2", 0, "failed", "memory: Turn it off"),
        ("spark3", 1, "", ""),
    ]
    assert world.journal[-1]["failed"] == ["spark2"]
    results = {step["host"]: step["result"] for step in of(world.journal, "operation_finished")}
    assert results == dict(zip(NAMES, ("changed", "failed", "changed"), strict=True))


def test_a_fault_of_the_program_is_one_line(applied: Runs) -> None:
    world, ended = applied["bug"]
    assert ended.code == 1
    words = "a fault of this program, please report it: ZeroDivisionError: no one foresaw this (small_program.py:"
    assert f"spark2: {words}" in ended.stdout
    assert "Traceback" not in ended.text
    assert not world.lock.exists()
    assert of(world.journal, "host_error")[0]["reason"].startswith(words)
    assert (world.journal[-1]["event"], world.journal[-1]["result"]) == ("run_finished", "failed")


def test_a_lock_that_goes_meanwhile_is_not_a_success(applied: Runs) -> None:
    world, ended = applied["lock goes"]
    assert ended.code == 1
    assert all(world.things(name) == ["new", "new"] for name in NAMES)
    report = json.loads(ended.stdout)
    assert report["result"] == "done"
    assert report["faults"][0].startswith("spark1: the lock was gone before the end, by a restart or by")


def test_a_change_that_was_not_shown_stops_that_machine_alone(applied: Runs) -> None:
    world, ended = applied["creeps"]
    assert ended.code == 1
    reported = "is not in the plan that was shown; nothing of this was sent; plan again"
    assert f"spark2: refused: memory: memory.swap: on -> off: {reported}" in ended.stderr
    assert [world.things(name) for name in NAMES] == [["new", "new"], ["old", "old"], ["new", "new"]]
    report = json.loads(ended.stdout)
    assert report["result"] == "failed"
    assert [one["fault"] for one in report["hosts"]] == ["", "refused", ""]
    assert not world.lock.exists()


def test_a_canary_that_was_stopped_has_tried_nothing(applied: Runs) -> None:
    """The next machine is alone then."""
    world, ended = applied["canary creeps"]
    assert ended.code == 1
    assert world.sent[:2] == ["spark2 memory", "spark2 memory"]
    assert world.things("spark1") == ["old", "old"]
