"""`sparkrack apply` in every kind of world: what it does, says, keeps and gives back."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from sparkrack.cli.telling import STAYS
from sparkrack.ops.lock import Holder
from sparkrack.run.journal import EVENTS
from tests.generated import REPOSITORY, check

from .runs import BIN, Ended
from .world import CANARY, ENVIRONMENT, NAMES, World, many

OTHER = Holder("20260314T091500-3fa2", "ben@desk", "2026-03-14T09:15:00+00:00", "spark2: memory")


RUNBOOK = (
    *("changes the rack; when that run is gone: sparkrack unlock", "/run/sparkrack/run.lock cannot be read"),
    *(
        "holds the rack, not",
        "keeps the lock of the rack and cannot be reached",
        "the lock of the rack cannot be taken",
    ),
    *("the lock could not be given back", "the lock was gone before the end", "the lock is now that of"),
    *(
        "things have moved",
        "the order of the steps",
        "the plan is about rack",
        "cannot be brought to the declared state",
    ),
    *("there is no terminal to ask on; say -y, or name a plan", "ended in the middle of", "failed in the middle of"),
    *("the connection was lost", "a fault of this program, please report it", "no journal can be kept"),
    "the journal is not whole",
)
"""What these tests, and those of tests/unit/run, see the program say."""


@dataclass
class Case:
    """A world, and how `sparkrack apply` is called in it. `keys`: what a person types, at a terminal. `lines`: so many
    go into the journal before the disk is full. `git`: the rack's folder is a repository."""

    words: tuple[str, ...]
    peculiar: dict[str, Any] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    lock: str | None = None
    keys: str | None = None
    lines: int | None = None
    state_is_a_file: bool = False
    git: bool = False


CASES = {
    "all": Case(("-y",)),
    "nothing": Case(("-y",), new=NAMES),
    "nothing-json": Case(("-y", "--json"), new=NAMES),
    "json": Case(("-y", "--json"), new=("spark1", "spark2")),
    "quiet": Case(("-y", "--quiet")),
    "one": Case(("-y", "--limit", "spark2", "--only", "rdma")),
    "canary fails": Case(("-y",), {"spark1": {"fails": True}}),
    "fails": Case(("-y", "--json"), {"spark2": {"fails": True}}),
    "bug": Case(("-y",), {"spark2": {"bug": True}}, new=("spark1",)),
    "unknown": Case(("-y",), {"spark3": {"unknown": "the node did not \x1b[2Janswer"}}),
    "refused": Case(("-y",), {"spark3": {"refused": "it is in the way"}}),
    "late": Case(("-y",), {"spark2": {"late": "it is in the way now"}}, new=("spark1",)),
    "unreachable": Case(("-y",), {"spark3": {"away": True}}),
    "head away": Case(("-y", "--exclude", "spark1"), {"spark1": {"away": True}}),
    "held": Case(("-y",), lock=OTHER.text),
    "held by garbage": Case(("-y",), lock="\x1b[2J"),
    "lock goes": Case(("-y", "--json"), {"spark2": {"unlocks": True}}, new=("spark3",)),
    "disk full": Case(("-y",), lines=4),
    "git": Case(("-y", "--limit", "spark3", "--only", "rdma"), git=True),
    "no journal": Case(("-y",), state_is_a_file=True),
    "nobody to ask": Case(()),
    "yes": Case((), keys="y\n"),
    "no": Case((), keys="n\n"),
    "nobody answers": Case((), keys=""),
    "names": Case(("-y", "--limit", "spark9")),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[World, Ended]]:
    top = tmp_path_factory.mktemp("apply")
    worlds, asked = {}, []
    for name, case in CASES.items():
        world = worlds[name] = World(top / name.replace(" ", "-"), case.peculiar, case.new, case.lock)
        if case.state_is_a_file:
            (world.folder / "state").touch()
        if case.git:
            git(world.folder, "init", "-q")
            git(world.folder, "add", "rack.yaml")
            git(world.folder, "-c", "user.name=ana", "-c", "user.email=ana@desk", "commit", "-q", "-m", "the rack")
        more = {"keys": case.keys, "lines": case.lines}
        known = {key: value for key, value in more.items() if value is not None}
        asked.append({"folder": world.folder, "words": ["apply", *case.words], **known})
    return {name: (worlds[name], ended) for name, ended in zip(CASES, many(asked), strict=True)}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


def of(journal: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in journal if line["event"] == event]


def last(ended: Ended) -> str:
    return ended.stdout.splitlines()[-1]


def test_everything_is_done(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["all"]
    assert ended.code == 0, ended.text
    assert all(world.things(name) == ["new", "new"] for name in NAMES)
    lines = ended.stdout.splitlines()
    assert "3 hosts, 12 changes, 0 unknown" in lines
    done = [line.partition(": changed, ")[0] for line in lines if ": changed, " in line]
    assert done[0] == "[1/2] spark1: memory: Turn it off", "the canary"
    assert sorted(done[1:3]) == [f"[1/2] {name}: memory: Turn it off" for name in NAMES[1:]]
    assert sorted(done[3:]) == [f"[2/2] {name}: rdma: Give it to users" for name in NAMES]
    assert lines[-4:-1] == [f"{name}: 2 operations changed it" for name in NAMES]
    assert lines[-1] == f"done; journal: {world.journals[0]}"
    assert ended.stderr == ""


def test_the_canary_is_alone(runs: dict[str, tuple[World, Ended]]) -> None:
    world, _ = runs["all"]
    assert world.sent[:2] == ["spark1 memory", "spark1 memory"]
    assert len(world.sent) == 12


def test_the_lock_is_held_while_it_changes_and_given_back(runs: dict[str, tuple[World, Ended]]) -> None:
    for name, what in (("all", "spark1, spark2, spark3"), ("one", "spark2: preflight, rdma")):
        world, _ = runs[name]
        seen = json.loads((world.folder / "seen").read_text())
        assert seen["what"] == what
        assert seen["id"] == world.journals[0].stem
        assert not world.lock.exists()


def test_of_one_machine_and_role_nothing_else_is_touched(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["one"]
    assert ended.code == 0
    assert set(world.sent) == {"spark2 rdma"}
    assert world.connected == ["spark2", "spark1"], "the head for its lock alone"


def test_the_journal(runs: dict[str, tuple[World, Ended]]) -> None:
    world, _ = runs["all"]
    (path,) = world.journals
    assert path.parent == world.folder / "state/sparkrack/ring/runs"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    journal = world.journal
    assert {line["run"] for line in journal} == {path.stem}
    assert {line["event"] for line in journal} <= set(EVENTS)
    began, ended = journal[0], journal[-1]
    assert set(began) == {"run", "at", "event", "schema", "who", "what", "file", "revision", "plan"}
    assert (began["schema"], began["file"]) == ("sparkrack.journal/1", str(world.folder / "rack.yaml"))
    assert set(ended) == {"run", "at", "event", "result", "failed", "at_hand"}
    assert (ended["event"], ended["result"], ended["failed"], ended["at_hand"]) == ("ended", "done", [], {})
    steps = of(journal, "step")
    assert len(steps) == 6
    assert set(steps[0]) == {"run", "at", "event", "host", "role", "step", "result", "seconds"}
    assert (steps[0]["host"], steps[0]["role"], steps[0]["step"]) == ("spark1", "memory", "Turn it off")
    assert {step["result"] for step in steps} == {"changed"}
    said = of(journal, "said")[0]
    assert set(said) == {"run", "at", "event", "host", "sort", "text"}
    assert (said["host"], said["sort"], said["text"]) == ("spark1", "change", "memory.level: old -> new")


def test_the_journal_knows_the_revision_of_the_rack(runs: dict[str, tuple[World, Ended]]) -> None:
    world, _ = runs["git"]
    head = git(world.folder, "rev-parse", "HEAD")
    assert world.journal[0]["revision"] == f"{head[:12]}+", "beside rack.yaml lies what is not committed"
    assert runs["all"][0].journal[0]["revision"] == ""


def test_a_journal_that_cannot_be_written_ends_it(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["disk full"]
    assert ended.code == 1
    assert [line["event"] for line in world.journal] == ["began", "said", "said", "said"]
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["old", "old"]]
    assert ended.stdout.splitlines()[-2] == "the journal is not whole: No space left on device"
    assert last(ended).startswith("stopped; ")
    assert not world.lock.exists()


@pytest.mark.parametrize("name", ["nothing", "nothing-json"])
def test_with_nothing_to_do_there_is_neither_lock_nor_journal(name: str, runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs[name]
    assert ended.code == 0
    assert (world.sent, world.journals, world.lock.parent.exists()) == ([], [], False)
    if name == "nothing":
        assert ended.stdout.splitlines() == ["3 hosts, 0 changes, 0 unknown", "nothing to do"]
    else:
        empty: dict[str, Any] = {"run": None, "journal": None, "machines": [], "notes": [], "faults": []}
        assert json.loads(ended.stdout) == {"schema": "sparkrack.apply/1", "result": "nothing to do", **empty}


def test_json(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["json"]
    assert ended.code == 0
    report = json.loads(ended.stdout)
    assert (report["schema"], report["result"]) == ("sparkrack.apply/1", "done")
    assert (report["run"], report["journal"]) == (world.journals[0].stem, str(world.journals[0]))
    assert report["machines"] == [
        {"name": name, "changed": 2 if name == "spark3" else 0, "fault": "", "step": ""} for name in NAMES
    ]
    assert "done; journal:" in ended.stderr


def test_quiet(runs: dict[str, tuple[World, Ended]]) -> None:
    _, ended = runs["quiet"]
    assert not [line for line in ended.stdout.splitlines() if "Turn it off" in line]
    assert last(ended).startswith("done; journal: ")


def test_a_canary_that_fails_ends_it(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["canary fails"]
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


def test_one_that_refuses_when_it_is_to_begin(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["late"]
    assert ended.code == 1
    lines = ended.stdout.splitlines()
    assert "spark2: refused: memory: it is in the way now" in lines
    assert "spark2: refused at memory: Turn it off; nothing of that was done" in lines
    assert lines[-1].startswith("failed; journal: ")
    assert (world.sent, world.lock.exists()) == ([], False)


def test_the_first_failure_stops_everything_after_its_wave(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["fails"]
    assert ended.code == 1
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["new", "old"]]
    assert not [line for line in world.sent if "rdma" in line]
    assert not world.lock.exists()
    report = json.loads(ended.stdout)
    assert report["result"] == "failed"
    assert [tuple(one.values()) for one in report["machines"]] == [
        ("spark1", 1, "", ""),
        ("spark2", 0, "failed", "memory: Turn it off"),
        ("spark3", 1, "", ""),
    ]
    assert world.journal[-1]["failed"] == ["spark2"]
    results = {step["host"]: step["result"] for step in of(world.journal, "step")}
    assert results == dict(zip(NAMES, ("changed", "failed", "changed"), strict=True))


def test_a_fault_of_the_program_is_one_line(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["bug"]
    assert ended.code == 1
    words = "a fault of this program, please report it: ZeroDivisionError: nobody foresaw this (applied.py:"
    assert f"spark2: {words}" in ended.stdout
    assert "Traceback" not in ended.text
    assert not world.lock.exists()
    assert of(world.journal, "broke")[0]["why"].startswith(words)
    assert (world.journal[-1]["event"], world.journal[-1]["result"]) == ("ended", "failed")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unknown", "unknown: the node did not \\x1b[2Janswer"),
        ("refused", "refused: it is in the way"),
        ("unreachable", "spark3: unreachable: No route to host"),
        ("head away", "spark1 keeps the lock of the rack and cannot be reached: No route to host; nothing was changed"),
        ("held", OTHER.busy),
        ("held by garbage", "cannot be read) changes the rack; when that run is gone: sparkrack unlock unknown"),
        ("no journal", "no journal can be kept: Not a directory; nothing was changed"),
        ("nobody to ask", "there is no terminal to ask on; say -y, or name a plan"),
        ("no", "ended"),
        ("nobody answers", "ended"),
        ("names", "--limit spark9: not in the rack; there are spark1, spark2, spark3"),
    ],
)
def test_refused_as_a_whole(name: str, said: str, runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs[name]
    assert ended.code == 1
    assert said in ended.text
    assert "Traceback" not in ended.text
    assert (world.sent, world.journals) == ([], [])
    assert [world.things(one) for one in NAMES] == [["old", "old"]] * 3
    assert world.lock.exists() == (CASES[name].lock is not None)
    if CASES[name].lock:
        assert world.lock.read_text() == CASES[name].lock
    if name in ("unknown", "refused", "unreachable"):
        assert "spark3: cannot be brought to the declared state; nothing was changed" in ended.stderr
    if name in ("nobody to ask", "names"):
        assert world.connected == []


def test_somebody_agrees(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["yes"]
    assert ended.code == 0
    assert "Apply this? [y/N]: " in ended.stdout
    assert len(world.sent) == 12


def test_a_lock_that_goes_meanwhile_is_no_success(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["lock goes"]
    assert ended.code == 1
    assert all(world.things(name) == ["new", "new"] for name in NAMES)
    report = json.loads(ended.stdout)
    assert report["result"] == "done"
    assert report["faults"][0].startswith("spark1: the lock was gone before the end, by a restart or by")


def test_a_secret_is_where_it_belongs_and_nowhere_else(runs: dict[str, tuple[World, Ended]]) -> None:
    world, _ = runs["all"]
    assert CANARY in (world.folder / "nodes/spark1/etc/memory.secret").read_text()
    for name, (world, ended) in runs.items():
        assert CANARY not in ended.text, name
        for path in (*world.journals, *world.folder.glob("seen")):
            assert CANARY not in path.read_text(), name


def test_no_terminal_is_led_astray(runs: dict[str, tuple[World, Ended]]) -> None:
    for name, (_, ended) in runs.items():
        assert {sign for sign in ended.text if not sign.isprintable()} <= {"\n"}, name


def alike(text: str, world: World) -> str:
    """What a run printed, as it is printed every time."""
    (path,) = world.journals
    for old, new in (
        (str(path.parent), "~/.local/state/sparkrack/ring/runs"),
        (str(world.folder), "~/rack"),
        (path.stem, OTHER.id),
        (f'"who": "{world.journal[0]["who"]}"', '"who": "ana@desk"'),
    ):
        text = text.replace(old, new)
    text = re.sub(r'"at": "[^"]*"', '"at": "2026-03-14T09:15:00.250+00:00"', text)
    text = re.sub(r'"plan": "[0-9a-f]{16}"', '"plan": "4f1d2a7be09c3358"', text)
    return re.sub(r"(, |: )\d+\.\d+( s|})", r"\g<1>0.1\2", text)


def test_the_document_shows_a_run_that_fails(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["canary fails"]
    shown = ended.stdout[ended.stdout.index("3 hosts") :]
    check("docs/apply.md", "apply failed", alike(shown, world))
    check("docs/apply.md", "apply journal", alike(world.journals[0].read_text(), world))


def test_the_document_names_every_event_and_field(runs: dict[str, tuple[World, Ended]]) -> None:
    text = (REPOSITORY / "docs/apply.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    assert set(rows) == set(EVENTS)
    journals = [world.journal for world, _ in runs.values() if world.journals]
    for line in chain.from_iterable(journals):
        for name in set(line) - {"run", "at", "event"}:
            assert f"`{name}`" in rows[line["event"]], line
    assert {line["event"] for line in chain.from_iterable(journals)} == set(EVENTS)
    json_text = text.partition("## --json")[2].partition("\n## ")[0]
    for name in {**json.loads(runs["json"][1].stdout), **json.loads(runs["json"][1].stdout)["machines"][0]}:
        assert f"`{name}`" in json_text or f'"{name}"' in json_text, name


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/runs.md").read_text()
    for words in RUNBOOK:
        assert words in text, words


def test_without_any_stdin(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" apply --rack "$1" <&-', BIN / "sparkrack", world.folder / "rack.yaml"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (1, "Error: there is no terminal to ask on; say -y, or name a plan\n")
