"""The journal of `sparkrack apply`: what stands in it, and a run that cannot write it."""

from __future__ import annotations

from sparkrack.run.journal import EVENTS

from .apply_cases import Runs, git, last, of
from .world import NAMES


def test_the_journal(applied: Runs) -> None:
    world, _ = applied["all"]
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


def test_the_journal_knows_the_revision_of_the_rack(applied: Runs) -> None:
    world, _ = applied["git"]
    head = git(world.folder, "rev-parse", "HEAD")
    assert world.journal[0]["revision"] == f"{head[:12]}+", "beside rack.yaml lies what is not committed"
    assert applied["all"][0].journal[0]["revision"] == ""


def test_a_journal_that_cannot_be_written_ends_it(applied: Runs) -> None:
    world, ended = applied["disk full"]
    assert ended.code == 1
    assert [line["event"] for line in world.journal] == ["began", "said", "said", "said"]
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["old", "old"]]
    assert ended.stdout.splitlines()[-2] == "the journal is not whole: No space left on device"
    assert last(ended).startswith("stopped; ")
    assert not world.lock.exists()
