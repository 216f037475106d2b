"""How a rebuild goes through its phases: in this process, with commands that are only noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from sparkrack.engine.subcommands import CommandResult, InterruptedCommandError
from sparkrack.rebuild import runner
from sparkrack.rebuild.journal import (
    CommandFinished,
    CommandStarted,
    Line,
    Past,
    PhaseFinished,
    PhaseStarted,
    RebuildJournal,
    RebuildStarted,
)
from sparkrack.rebuild.model import Phase, PhaseReport, Request, requested
from sparkrack.rebuild.phase_commands import ForwardedOptions
from sparkrack.rebuild.runner import Environment, Rebuild, judge_workloads, rack_state
from sparkrack.rebuild.workloads import NodeReachability, NodeWorkload
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.rebuild.test_reboot_reasons import status
from tests.unit.rebuild.test_requests import RUN, SERVED

RACK = loaded(SWITCH)
QUIET = NodeWorkload(NodeReachability.OURS)


class Commands:
    """Notes each command and ends it as `ends` says, by its first words."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.ends: dict[str, int] = {}
        self.output = [status(spark1=False, spark2=False)]
        self.checks: Callable[[], None] = lambda: None

    def check(self) -> None:
        self.checks()

    def call(self, words: Sequence[str], *, keep: bool = False) -> CommandResult:
        line = " ".join(words)
        self.called.append(line)
        code = next((code for begin, code in self.ends.items() if line.startswith(begin)), 0)
        return CommandResult(
            code, 1.26, (self.output.pop(0) if len(self.output) > 1 else self.output[0]) if keep else b""
        )


class Progress:
    def __init__(self) -> None:
        self.phases: list[tuple[str, ...]] = []

    def phase(self, name: str, machines: Sequence[str] = ()) -> None:
        self.phases.append((name, *machines))


class Rebuilt:
    """A rebuild of the rack with two nodes and a switch."""

    def __init__(
        self, folder: Path, request: Request, rack: Rack = RACK, past: Past | None = None, **more: Any
    ) -> None:
        self.commands, self.said, self.hidden = Commands(), list[str](), list[bool]()
        self.found: dict[str, NodeWorkload] = {"spark1": QUIET, "spark2": QUIET}
        self.works = False
        self.progress = Progress()
        self.journal = RebuildJournal(folder, RUN)

        def look(names: Sequence[str], others: Sequence[str]) -> dict[str, NodeWorkload]:
            return {name: self.found[name] for name in (*names, *others)}

        @contextmanager
        def hidden() -> Iterator[None]:
            self.hidden.append(True)
            yield

        around = Environment(
            load=lambda: rack,
            look=look,
            works=lambda _name: self.works,
            ports=dict,
            timeout=more.pop("timeout", 0.0),
            say=self.said.append,
            progress=self.progress,  # type: ignore[arg-type]
            hidden=hidden,
        )
        make: type[Rebuild] = more.pop("make", Rebuild)
        self.rebuild = make(
            request,
            more.pop("forwarded", ForwardedOptions()),
            frozenset(more.pop("containers", ())),
            around,
            self.commands,  # type: ignore[arg-type]
            self.journal,
            past,
            **more,
        )

    def run(self) -> str:
        result = self.rebuild.run("ana@desk")
        self.journal.close()
        return result

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.path.read_text().splitlines()]


def whole(rack: Rack = RACK, units: tuple[str, ...] = ()) -> Request:
    return requested(rack, Path("/srv/rack.yaml"), (), None, True).model_copy(update={"units": units})


def of_nodes(*names: str, apart: tuple[str, ...] = (), units: tuple[str, ...] = ()) -> Request:
    return requested(RACK, Path("/srv/rack.yaml"), names, None, False, apart).model_copy(update={"units": units})


def of_switch() -> Request:
    return requested(RACK, Path("/srv/rack.yaml"), (), "", False)


def earlier(*lines: Line) -> Past:
    request = RebuildStarted(run=RUN, who="ana@desk", request=whole())
    return Past(Path("x"), (request, *lines))


def test_each_phase_is_said_and_noted_with_its_seconds(tmp_path: Path) -> None:
    one = Rebuilt(tmp_path, whole())
    assert one.run() == "done"
    places = [line for line in one.said if line.startswith("[")]
    assert [line.partition(",")[0].partition(": the")[0] for line in places] == [
        text
        for number, phase in enumerate(("wait", "bootstrap", "apply", "reboot", "verify"), 1)
        for text in (f"[{number}/5] {phase}", f"[{number}/5] {phase}: done")
    ]
    assert places[0] == "[1/5] wait: the whole rack"
    assert all(line.endswith(" s") for line in places[1::2])
    events = [line["event"] for line in one.lines()]
    assert events[:3] == ["phase", "left", "phase"]
    assert events[-1] == "ended"
    assert "resumed" not in events
    calls = [line for line in one.lines() if line["event"] == "returned"]
    assert {(line["exit"], line["seconds"], line["machine"]) for line in calls} == {(0, 1.3, None)}
    assert {(report.result, report.tries, report.reason) for report in one.rebuild.reports.values()} == {
        ("done", 1, "")
    }
    assert one.rebuild.next is None
    assert "  sparkrack apply -y --rack /srv/rack.yaml" in one.said
    assert not any("sparkrack status" in line for line in one.said), "what is only asked is not shown"
    assert len(one.hidden) == 4
    assert ("run sparkrack status",) in one.progress.phases


@pytest.mark.parametrize(
    ("begin", "code", "reason"),
    [
        ("bootstrap nodes", 1, "sparkrack bootstrap nodes ended with 1"),
        ("bootstrap switch", 3, "sparkrack bootstrap switch ended with 3"),
        ("apply", 2, "sparkrack apply ended with 2"),
        ("apply", -15, "sparkrack apply was ended by signal 15"),
        ("verify", 1, "sparkrack verify ended with 1"),
    ],
)
def test_a_command_that_fails_ends_the_rebuild_with_its_name(
    tmp_path: Path, begin: str, code: int, reason: str
) -> None:
    one = Rebuilt(tmp_path, whole())
    one.commands.ends = {begin: code}
    assert one.run() == "failed"
    assert one.commands.called[-1].startswith(begin)
    ended, last = one.lines()[-2:]
    assert (ended["event"], ended["result"], ended["reason"]) == ("left", "failed", reason)
    assert (last["event"], last["result"]) == ("ended", "failed")
    assert one.said[-1].endswith(f"s: {reason}")
    assert one.rebuild.next is Phase(begin.partition(" ")[0])
    assert one.rebuild.reports[one.rebuild.next].reason == reason


def test_a_first_contact_that_ends_with_a_warning_is_done(tmp_path: Path) -> None:
    one = Rebuilt(tmp_path, whole(), forwarded=ForwardedOptions(packages="/npk"))
    one.commands.ends = {"bootstrap": 2, "switch": 2}
    assert one.run() == "done"
    assert [call.partition(" --")[0] for call in one.commands.called[:3]] == [
        "bootstrap nodes spark1 spark2",
        "upgrade switch crs812 -y",
        "bootstrap switch crs812",
    ]


def test_a_rebuild_that_is_interrupted_says_so(tmp_path: Path) -> None:
    one = Rebuilt(tmp_path, whole())

    def interrupt() -> None:
        if one.commands.called:
            raise InterruptedCommandError

    one.commands.checks = interrupt
    assert one.run() == "interrupted"
    left = [line for line in one.lines() if line["event"] == "left"]
    assert [(line["phase"], line["result"], line["reason"]) for line in left] == [
        ("wait", "done", ""),
        ("bootstrap", "interrupted", "stopped by a signal"),
    ]


def test_a_rebuild_is_resumed_at_the_first_phase_that_is_not_done(tmp_path: Path) -> None:
    past = earlier(
        PhaseStarted(run=RUN, phase=Phase.WAIT),
        PhaseFinished(run=RUN, phase=Phase.WAIT, result="done", seconds=4.0),
        PhaseStarted(run=RUN, phase=Phase.BOOTSTRAP),
        PhaseFinished(run=RUN, phase=Phase.BOOTSTRAP, result="failed", seconds=2.0, reason="x"),
        PhaseStarted(run=RUN, phase=Phase.BOOTSTRAP),
    )
    one = Rebuilt(tmp_path, whole(), past=past)
    assert one.rebuild.reports[Phase.WAIT] == PhaseReport(phase=Phase.WAIT, result="done", seconds=4.0, tries=1)
    before = PhaseReport(phase=Phase.BOOTSTRAP, result="interrupted", seconds=2.0, tries=2)
    assert one.rebuild.reports[Phase.BOOTSTRAP] == before
    assert one.rebuild.reports[Phase.APPLY].result == "not reached"
    assert one.run() == "done"
    first = one.lines()[0]
    assert (first["event"], first["who"], first["phase"]) == ("resumed", "ana@desk", "bootstrap")
    assert one.rebuild.reports[Phase.BOOTSTRAP].tries == 3
    assert one.rebuild.reports[Phase.BOOTSTRAP].seconds >= 2.0
    assert one.said[0] == "[2/5] bootstrap: the whole rack"


@pytest.mark.parametrize(
    ("begun", "works", "contact"), [(False, True, False), (False, False, True), (True, True, True)]
)
def test_a_switch_that_takes_our_login_is_bootstrapped_only_if_that_was_begun(
    tmp_path: Path, begun: bool, works: bool, contact: bool
) -> None:
    call = CommandStarted(run=RUN, words=("bootstrap", "switch", "crs812"))
    one = Rebuilt(tmp_path, of_switch(), past=earlier(call) if begun else None)
    one.works = works
    assert one.run() == "done"
    assert any(call.startswith("bootstrap switch crs812") for call in one.commands.called) is contact
    said = "crs812: takes our login over the pinned certificate; no first contact is needed"
    assert (said in one.said) is not contact


# The restart


def test_each_node_that_asks_for_it_is_restarted_once(tmp_path: Path) -> None:
    past = earlier(CommandFinished(run=RUN, exit=0, seconds=1.0, machine="spark1"))
    one = Rebuilt(tmp_path, whole(), past=past, containers=["spark2"])
    one.commands.output = [status(spark1=True, spark2=True)]
    assert one.run() == "done"
    reboots = [call for call in one.commands.called if call.startswith("reboot")]
    assert reboots == ["reboot -y --rack /srv/rack.yaml --limit spark2 --containers"]
    reason = "a package or a new machine ID asks for it"
    assert f"spark1: was restarted already and still asks for it: {reason}; left to verify" in one.said
    assert f"spark2: is to be restarted: {reason}" in one.said
    assert one.rebuild.restarted == ["spark1", "spark2"]
    noted = [line["machine"] for line in one.lines() if line["event"] == "returned" and line["machine"]]
    assert noted == ["spark2"]


def test_without_a_reason_none_is_restarted(tmp_path: Path) -> None:
    one = Rebuilt(tmp_path, of_nodes("spark1"))
    assert one.run() == "done"
    assert "no node asks for a restart" in one.said
    assert not any(call.startswith("reboot") for call in one.commands.called)


def test_a_node_that_does_not_tell_is_asked_again_only_if_it_may_be_on_its_way_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.0)
    unknown, known = status(spark1=None, spark2=False), status(spark1=False, spark2=False)
    one = Rebuilt(tmp_path, whole(), timeout=60.0)
    one.commands.output = [unknown, known]
    assert one.run() == "failed"
    assert one.said[-1].endswith("spark1: whether it should be restarted is unknown; see sparkrack status")
    past = earlier(PhaseStarted(run=RUN, phase=Phase.REBOOT))
    for timeout, result in ((60.0, "done"), (0.0, "failed")):
        other = Rebuilt(tmp_path, whole(), past=past, timeout=timeout)
        other.commands.output = [unknown, unknown, known]
        assert other.run() == result
        said = "a node may still be on its way up; asking again"
        assert other.said.count(said) == (2 if timeout else 0)
        waited = ("wait until the nodes answer", "spark1", "spark2")
        assert other.progress.phases.count(waited) == (2 if timeout else 0)


def test_units_that_a_phase_before_has_started_are_stopped_for_a_restart(tmp_path: Path) -> None:
    request = whole(SERVED, ("one",))
    one = Rebuilt(tmp_path, request, SERVED)
    busy = NodeWorkload(NodeReachability.OURS, units=("one",))
    real = one.commands.call

    def call(words: Sequence[str], *, keep: bool = False) -> CommandResult:
        if words[0] == "apply":
            one.found = {"spark1": busy, "spark2": busy}
        return real(words, keep=keep)

    one.commands.call = call  # type: ignore[method-assign]
    one.commands.output = [status(spark1=False, spark2=True)]
    assert one.run() == "done"
    verbs = [" ".join(call.split()[:3]) for call in one.commands.called]
    assert verbs[verbs.index("serve stop one") :][:3] == [
        "serve stop one",
        "reboot -y --rack",
        "serve start one",
    ]
    assert verbs.count("serve stop one") == 1


def test_a_unit_with_an_excluded_node_is_not_started(tmp_path: Path) -> None:
    request = requested(SERVED, Path("/srv/rack.yaml"), ("spark2",), None, False, ("spark1",))
    one = Rebuilt(tmp_path, request.model_copy(update={"units": ("one",)}), SERVED)
    assert one.run() == "done"
    assert "unit one: spark1 of it is excluded, so it is not started" in one.said
    assert not any(call.startswith("serve start") for call in one.commands.called)


# What stands in the way


@pytest.mark.parametrize("phase", ["bootstrap", "apply"])
def test_a_node_at_work_ends_the_phase_with_the_reason(tmp_path: Path, phase: str) -> None:
    one = Rebuilt(tmp_path, of_nodes("spark1"))
    one.found["spark1"] = NodeWorkload(NodeReachability.OURS, containers=1)
    if phase == "apply":  # a node that only accepts our key after bootstrap
        one.found["spark1"] = NodeWorkload(NodeReachability.NOT_OURS, reason="key")
    assert one.run() == "failed"
    assert one.rebuild.next is Phase(phase)
    assert ("count the containers", "spark1") in one.progress.phases


def test_units_are_stopped_only_if_that_is_confirmed() -> None:
    busy = NodeWorkload(NodeReachability.OURS, units=("one",))
    found = {"spark1": busy, "spark2": busy}
    request = requested(SERVED, Path("/srv/rack.yaml"), ("spark2",), None, False)
    assert judge_workloads(SERVED, request, found, (), True) == ({"one": ("spark1", "spark2")}, [])
    running, reasons = judge_workloads(SERVED, request, found, (), False)
    assert running == {"one": ("spark1", "spark2")}
    assert len(reasons) == 1


def test_nodes_that_are_not_in_service_are_reported() -> None:
    found = {
        "a": QUIET,
        "b": NodeWorkload(NodeReachability.AWAY, reason="off"),
        "c": NodeWorkload(NodeReachability.NOT_OURS, reason="key"),
        "d": NodeWorkload(NodeReachability.UNKNOWN, reason="x"),
    }
    assert rack_state(found) == [
        "b: does not answer, so it is not in service (off)",
        "c: is not in service: our key, or its host key, is not what this rack knows (key)",
    ]


DRIVER = changed(SWITCH, ("  swap: false\n", "  swap: false\ndriver: {version: '580'}\n"))


@pytest.mark.parametrize(("leave", "asked"), [("", True), ("leave: [driver]\n", False)])
def test_the_driver_is_asked_for_only_where_it_is_managed(tmp_path: Path, leave: str, asked: bool) -> None:
    one = Rebuilt(tmp_path, of_nodes("spark1"), loaded(leave + DRIVER))
    one.run()
    assert any(call.startswith("plan ") for call in one.commands.called) is asked
