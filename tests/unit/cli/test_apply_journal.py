"""The journal of `sparkrack apply`: what stands in it, and a run that cannot write it."""

from __future__ import annotations

from sparkrack.engine.journal import EVENTS, HostMessage
from tests.unit.cli.apply_cases import Runs, git, last, of
from tests.unit.cli.rack_folder import NAMES


def test_the_journal(applied: Runs) -> None:
    world, _ = applied["all"]
    (path,) = world.journals
    assert path.parent == world.folder / "state/sparkrack/ring/runs"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    journal = world.journal
    assert {line["run"] for line in journal} == {path.stem}
    assert {line["event"] for line in journal} <= set(EVENTS)
    began, ended = journal[0], journal[-1]
    assert set(began) == {"run", "at", "event", "schema", "operator", "scope", "file", "revision", "plan"}
    assert (began["schema"], began["file"]) == ("sparkrack.journal/2", str(world.folder / "rack.yaml"))
    assert set(ended) == {"run", "at", "event", "result", "failed", "in_progress"}
    assert (ended["event"], ended["result"], ended["failed"], ended["in_progress"]) == ("run_finished", "done", [], {})
    steps = of(journal, "operation_finished")
    assert len(steps) == 6
    assert set(steps[0]) == {"run", "at", "event", "host", "role", "operation", "result", "seconds"}
    assert (steps[0]["host"], steps[0]["role"], steps[0]["operation"]) == ("spark1", "memory", "Turn it off")
    assert {step["result"] for step in steps} == {"changed"}
    reported = of(journal, "message")[0]
    assert set(reported) == set(HostMessage.model_fields)
    assert (reported["host"], reported["kind"], reported["message"]) == ("spark1", "change", "memory.level: old -> new")
    assert (reported["role"], reported["subject"], reported["old"], reported["new"]) == (
        "memory",
        "memory.level",
        "old",
        "new",
    )


def test_the_journal_knows_the_revision_of_the_rack(applied: Runs) -> None:
    world, _ = applied["git"]
    head = git(world.folder, "rev-parse", "HEAD")
    assert world.journal[0]["revision"] == f"{head[:12]}+", "beside rack.yaml lies what is not committed"
    assert applied["all"][0].journal[0]["revision"] == ""


def test_a_journal_that_cannot_be_written_ends_it(applied: Runs) -> None:
    world, ended = applied["disk full"]
    assert ended.code == 1
    assert [line["event"] for line in world.journal] == ["run_started", "message", "message", "message"]
    assert [world.things(name) for name in NAMES] == [["new", "old"], ["old", "old"], ["old", "old"]]
    assert ended.stdout.splitlines()[-2] == "the journal is not whole: No space left on device"
    assert last(ended).startswith("stopped; ")
    assert not world.lock.exists()
