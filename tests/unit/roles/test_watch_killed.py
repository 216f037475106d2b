"""A run of the role watch that is killed after any program that it starts is completed by the next run.

The real operations and probes act on a node in a folder. The state after each program of one whole run is kept, and
that in the middle of each write; that is what a kill there leaves. The drift of that state must name what is missing,
and an ordinary run from it must end where the whole run ended: the same files, no service that runs with older ones,
and nothing left for a run after it. docs/evidence/every-write-watch.md lists the writes, and what follows each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.util.event import Event, EventKind
from tests.generated import REPOSITORY, check
from tests.unit.ops import fakenode
from tests.unit.roles.blackbox_node import BlackboxConnector
from tests.unit.roles.watch_node import ELSEWHERE, OTHERWISE, SECRETS, SERVER, WatchNode, WatchWorld

DOCUMENT = "docs/evidence/every-write-watch.md"
CHANGES = {
    "server": ("", SERVER, 94, (37,)),
    "otherwise": (SERVER, OTHERWISE, 29, (13, 21)),
    "moved": (SERVER, ELSEWHERE, 15, ()),
}
"""From which section to which, the number of states that a kill can leave, and those of the first tier."""


@dataclass
class State:
    """What a kill leaves: a copy of the world. `write`: what the run did last. `row`: its row in the document."""

    place: Path
    write: str
    row: int


@dataclass(frozen=True)
class WholeRun:
    """A run that was not killed. `files`: those at its end."""

    world: WatchWorld
    states: list[State] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], WholeRun]]:
    """Returns the run of a change, which is made when it is first asked for."""
    made: dict[str, WholeRun] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakenode, "Node", BlackboxConnector)
        for name, value in SECRETS.items():
            patch.setenv(name, value)

        def run(change: str) -> WholeRun:
            if change not in made:
                made[change] = _whole_run(change, tmp_path_factory.mktemp(change))
            return made[change]

        yield run


def _whole_run(change: str, folder: Path) -> WholeRun:
    before, after, count, _ = CHANGES[change]
    world, places = WatchWorld(folder / "world", before or after), folder / "states"
    world.node.install()
    if before:
        ended = world.run()
        assert ended.failed == [], ended.log
        world.declare(after)
    first = world.node.everything()
    world.node.leave_states(places)
    ended = world.run(world.node.leave_state)
    assert ended.failed == [], ended.log
    world.node.leave_states(None)
    found = WholeRun(world, _list_states(world, places, first), world.node.files())
    assert len(found.states) == count, "the number of states in CHANGES"
    assert world.node.stale_services() == []
    world.run()
    assert world.node.texts == [], "the second run changes nothing"
    return found


def _list_states(world: WatchWorld, places: Path, first: dict[str, str]) -> list[State]:
    """The states that differ from the one before, in order; `first`: that before the run."""
    states, row, last = list[State](), 0, first
    rows: dict[str, str] = {}
    for place in sorted(places.iterdir(), key=lambda path: int(path.name)):
        now = WatchNode({}, root=place).everything()
        if now == last:
            continue
        marks = [f"write /{path}" for path in now.keys() - last.keys() if path.endswith(".pending")]
        last, whole = now, {path: text for path, text in now.items() if not TEMPORARY.search(path)}
        if whole != rows:
            rows, row = whole, row + 1
        states.append(State(place, " and ".join(marks) or _describe_last_step(place, str(world.node.root)), row))
    return states


TEMPORARY = re.compile(r"/\.(?P<name>[^/]+)\.[A-Za-z0-9]{6}(?= |$)")
"""The name of a file that is not yet in its place."""


def _describe_last_step(place: Path, root: str) -> str:
    """What the run did last."""
    calls = [line.replace(root, "") for line in (place / "calls").read_text().splitlines()]
    words = calls[-1].split()
    if words[0] == "apt-get":
        unpacked = (place / "dpkg" / words[-1]).read_text() == "unpacked\n"
        return f"dpkg {'unpacks' if unpacked else 'configures'} {words[-1]}"
    if words[0] == "mv":
        return f"write {words[-1]}"
    return TEMPORARY.sub(r"/\g<name>", calls[-1])


KILLS = [
    pytest.param(change, kill, marks=() if kill in sample else pytest.mark.soak, id=f"{change}-{kill}")
    for change, (_, _, count, sample) in CHANGES.items()
    for kill in range(1, count + 1)
]


@pytest.mark.parametrize(("change", "kill"), KILLS)
def test_a_killed_run_is_completed_by_the_next(whole: Callable[[str], WholeRun], change: str, kill: int) -> None:
    run = whole(change)
    state = run.states[kill - 1]
    at = f"after {state.write!r}"
    run.world.node.put_back(state.place)
    named = run.world.drift()
    incomplete = run.world.node.files() != run.files or run.world.node.stale_services()
    assert named or not incomplete, f"{at}: drift names nothing"
    if not os.environ.get("UPDATE_DOCS"):
        assert _read_document(change)[state.row - 1].endswith(_format_cells(named)), f"{at}: {DOCUMENT}"
    ended = run.world.run()
    assert ended.failed == [], f"{at}: {ended.log}"
    assert run.world.node.files() == run.files, at
    assert run.world.node.stale_services() == [], at
    run.world.run()
    assert run.world.node.texts == [], f"{at}: the third run changes something"


@pytest.mark.parametrize("change", ["server", pytest.param("otherwise", marks=pytest.mark.soak)])
def test_no_kill_leaves_a_secret_to_others(whole: Callable[[str], WholeRun], change: str) -> None:
    """Neither in its place nor in a file that was being written."""
    held = set()
    for state in whole(change).states:
        for file in filter(Path.is_file, (state.place / "etc").rglob("*")):
            if any(secret.encode() in file.read_bytes() for secret in SECRETS.values()):
                held.add(TEMPORARY.sub(r"/\g<name>", f"/{file.relative_to(state.place)}"))
                assert not file.stat().st_mode & 0o007, f"{file} after {state.write!r}"
    assert held == {"/etc/prometheus/sparkrack-alertmanager.yml", "/etc/sparkrack/watch/switch-passwords.json"}


def _format_cells(named: list[Event]) -> str:
    """What drift names, and which program the next run starts again first, as the document has it."""
    again = [event.message.partition(":")[0] for event in named if event.kind is EventKind.RESTART]
    return f"| {len(named)} | {again[0] if again else '-'} |"


def _read_document(change: str) -> list[str]:
    """The rows of a change in the document."""
    block = (REPOSITORY / DOCUMENT).read_text().partition(f"<!-- generated: {change} -->")[2].partition("<!-- end")[0]
    return [line for line in block.splitlines() if re.match(r"\| \d+ ", line)]


DOCUMENTED = [pytest.param(one, marks=() if sample else pytest.mark.soak) for one, (*_, sample) in CHANGES.items()]


@pytest.mark.parametrize("change", DOCUMENTED)
def test_the_document_has_every_write(whole: Callable[[str], WholeRun], change: str) -> None:
    """UPDATE_DOCS=1 renews the rows, and what follows a kill there."""
    run = whole(change)
    firsts = {state.row: state for state in reversed(run.states)}
    counts = {row: sum(state.row == row for state in run.states) for row in firsts}
    if os.environ.get("UPDATE_DOCS"):
        lines = []
        for row in sorted(firsts):
            run.world.node.put_back(firsts[row].place)
            lines.append(f"| {row} | {firsts[row].write} | {counts[row]} {_format_cells(run.world.drift())}\n")
        head = "| | write | states | drift names | the next run |\n| --- | --- | --- | --- | --- |\n"
        check(DOCUMENT, change, head + "".join(lines))
    wanted = [f"| {row} | {firsts[row].write} | {counts[row]} |" for row in sorted(firsts)]
    assert [re.sub(r"( \|)( \d+ \| [^|]+ \|)$", r"\1", line) for line in _read_document(change)] == wanted, DOCUMENT
