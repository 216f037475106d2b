"""A run of the role blackbox that is killed after any of its commands is completed by the next run.

The real operations and probes act on a node in a folder. The state after each command of one whole run is kept; that is
what a kill there leaves. An ordinary run from it must end where the whole run ended: the same files, no service that
runs with older ones, and nothing left for a run after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.ops import fakenode, shells
from tests.unit.roles import systemctl_standin
from tests.unit.roles.blackbox_node import EVERYTHING, NOTHING, OTHERWISE, BlackboxConnector, BlackboxWorld

CHANGES = {
    "everything": ("", EVERYTHING, 73, 29),
    "otherwise": (EVERYTHING, OTHERWISE, 33, 9),
    "nothing": (EVERYTHING, NOTHING, 19, 6),
}
"""From which section to which, the number of commands of the run, and the one of the first tier after which it dies."""


@dataclass(frozen=True)
class WholeRun:
    """A run that was not killed. `states`: the folders of the state after each command. `files`: those at its end."""

    world: BlackboxWorld
    states: list[Path]
    commands: list[str]
    files: dict[str, str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WholeRun]]:
    """Returns the run of a change, which is made when it is first asked for."""
    made: dict[str, WholeRun] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakenode, "Node", BlackboxConnector)

        def run(change: str) -> WholeRun:
            if change not in made:
                made[change] = _whole_run(change, tmp_path_factory.mktemp(change))
            return made[change]

        yield run


def _whole_run(change: str, folder: Path) -> WholeRun:
    before, after, *_ = CHANGES[change]
    world, states = BlackboxWorld(folder / "world", before or after), list[Path]()
    world.node.install()
    if before:
        ended = world.run()
        assert ended.failed == [], ended.log
        world.declare(after)

    def keep() -> None:
        states.append(folder / str(len(states) + 1))
        world.keep(states[-1])

    ended = world.run(keep)
    assert ended.failed == [], ended.log
    found = WholeRun(world, states, world.node.texts, world.node.files())
    assert len(states) == CHANGES[change][2], "the number of commands in CHANGES"
    assert world.node.stale_services() == []
    world.run()
    assert world.node.texts == [], "the second run changes nothing"
    return found


KILLS = [
    pytest.param(change, kill, marks=() if kill == sample else pytest.mark.soak, id=f"{change}-{kill}")
    for change, (_, _, commands, sample) in CHANGES.items()
    for kill in range(1, commands + 1)
]


@pytest.mark.parametrize(("change", "kill"), KILLS)
def test_a_killed_run_is_completed_by_the_next(whole: Callable[[str], WholeRun], change: str, kill: int) -> None:
    run = whole(change)
    last = run.commands[kill - 1]
    run.world.restore(run.states[kill - 1])
    ended = run.world.run()
    assert ended.failed == [], f"after {last!r}: {ended.log}"
    assert run.world.node.files() == run.files, last
    assert run.world.node.stale_services() == [], last
    run.world.run()
    assert run.world.node.texts == [], f"after {last!r}"


def test_units_that_are_masked_until_the_boot_are_unmasked_once(whole: Callable[[str], WholeRun]) -> None:
    run = whole("everything")
    world = run.world
    names = ("systemd-pstore.service", "systemd-journal-flush.service", "systemd-journal-upload.service")
    assert shells.run(f"systemctl mask --runtime {' '.join(names)}", world.node.root).returncode == 0
    ended = world.run()
    assert ended.failed == [], ended.log
    systemd = systemctl_standin.Node(world.node.root)
    assert [systemd.file_state(name) for name in names] == ["enabled", "disabled", "enabled"]
    world.run()
    assert world.node.texts == [], "the run after it changes nothing"
