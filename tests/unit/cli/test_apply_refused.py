"""`sparkrack apply` that does not begin: nothing is sent, nothing is kept."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from core.ops import run_lock
from sparkrack.engine.subcommands import WITHIN
from tests.unit.cli.apply_cases import CASES, OTHER, Runs
from tests.unit.cli.rack_folder import ENVIRONMENT, NAMES, PROGRAM, World
from tests.unit.cli.runs import BIN, REPOSITORY


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("unknown", "unknown: the node did not \\x1b[2Janswer"),
        ("refused", "refused: it is in the way"),
        (
            "moves",
            "since the plan was shown things have moved; nothing was changed\n  now: spark2: memory: memory.swap:",
        ),
        ("moves alone", "  now: spark2: memory: memory.swap: on -> off\n"),
        ("unreachable", "spark3: unreachable: No route to host"),
        (
            "head away",
            "spark1, which stores the lock of the rack, is unreachable: No route to host; nothing was changed",
        ),
        ("held", OTHER.busy),
        ("held by garbage", "cannot be read); if that run is dead: sparkrack unlock unknown"),
        ("no journal", "no journal can be kept: Not a directory; nothing was changed"),
        ("no one to ask", "there is no terminal for a prompt; pass -y, or name a plan"),
        ("no", "ended"),
        ("no one answers", "ended"),
        ("names", "--limit spark9: not in the rack; there are spark1, spark2, spark3"),
    ],
)
def test_refused_as_a_whole(name: str, reported: str, applied: Runs) -> None:
    world, ended = applied[name]
    assert ended.code == 1
    assert reported in ended.text
    assert "Traceback" not in ended.text
    assert (world.sent, world.journals) == ([], [])
    assert [world.things(one) for one in NAMES] == [["old", "old"]] * 3
    assert world.lock.exists() == (CASES[name].lock is not None)
    if CASES[name].lock:
        assert world.lock.read_text() == CASES[name].lock
    if name in ("unknown", "refused", "unreachable"):
        assert "spark3: cannot be brought to the declared state; nothing was changed" in ended.stderr
    if name in ("no one to ask", "names"):
        assert world.connected == []
    if name.startswith("held"):
        assert world.connected == ["spark1"], "only the head, which has the lock, is asked"


def last_lines(world: World) -> list[str]:
    """What an apply prints to stderr that is not within another command."""
    outside = {name: value for name, value in ENVIRONMENT.items() if name != WITHIN}
    done = subprocess.run(
        [*PROGRAM, str(world.folder), "apply", "-y"],
        cwd=REPOSITORY,
        env=outside,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_the_next_step_is_the_last_line_below_the_error(tmp_path: Path) -> None:
    world = World(tmp_path / "world", {"spark3": {"away": True}})
    assert last_lines(world) == [
        "Error: spark3: cannot be brought to the declared state; nothing was changed",
        f"Next, without the hosts that are not ready: sparkrack apply --rack {world.folder}/rack.yaml --exclude spark3",
    ]


def test_the_lock_of_a_dead_run_of_this_machine_is_ended_next(tmp_path: Path) -> None:
    gone = replace(OTHER, process=run_lock.new_holder("x").process.rpartition(" ")[0] + " 1", beat=run_lock.BEAT)
    assert gone.dead
    world = World(tmp_path / "world", lock=gone.text)
    assert last_lines(world) == [
        f"Error: {gone.busy}",
        f"Next, to end the lock of the dead run: sparkrack unlock {gone.id}",
    ]


def test_without_any_stdin(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" apply --rack "$1" <&-', BIN / "sparkrack", world.folder / "rack.yaml"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (1, "Error: there is no terminal for a prompt; pass -y, or name a plan\n")
