"""What a coordinator answers, to whom, and what it refuses: its server alone on loopback, with its own state
machine."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import serve_answers, serve_coordinator, serve_lifecycle, serve_probe, serve_unit
from tests.serving.stepped_unit import SteppedUnit
from tests.serving.test_unit_file import MINIMAL, written

SECRET = b"s" * 64
REPORT: dict[str, Any] = {
    "kind": "report",
    "rank": 1,
    "state": "idle",
    "generation": 0,
    "boot": "b",
    "clean": True,
    "leaving": False,
    "kernel": "",
    "detail": "",
    "gate": None,
}
SKEW = serve_lifecycle.ClockSkew(0.0, 0.01)


class Ended:
    """In place of a listener: ends the thread that accepts."""

    def accept(self) -> None:
        raise SystemExit


class LoneCoordinator:
    """The server of a coordinator whose ranks are at 127.0.0.1 and 127.0.0.2."""

    def __init__(self, folder: Path, previous: int | None = None) -> None:
        self.thread: threading.Thread | None = None
        secret, self.key = folder / "secret", folder / "key"
        for file, text in ((secret, SECRET.decode()), (self.key, "k" * 24)):
            file.write_text(text)
            file.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ranks = [{"node": f"spark{number}", "address": f"127.0.0.{number}"} for number in (1, 2)]
        ends = {"head": {"address": "127.0.0.1", "port": port}, "secret_file": str(secret)}
        api = {"address": "127.0.0.1", "port": port + 1, "key_file": str(self.key)}
        self.file = written(folder, {**MINIMAL, **ends, "ranks": ranks, "api": api})
        self.unit = serve_unit.load_unit(self.file)
        record = serve_lifecycle.UnitRecord("qwen")
        self.lifecycle = serve_lifecycle.UnitLifecycle(self.unit, record, lambda _: None, time.monotonic())
        self.server = serve_coordinator.CoordinatorServer(self.unit, previous, SECRET, self.lifecycle, threading.Lock())

    def serve(self) -> None:
        self.thread = threading.Thread(target=self._serve_connections, daemon=True)
        self.thread.start()

    def _serve_connections(self) -> None:
        with contextlib.suppress(SystemExit):  # of `Ended`
            self.server.serve()

    def close(self) -> None:
        """End the server: its loop ends for nothing that a socket raises."""
        listener, self.server.listener = self.server.listener, Ended()  # type: ignore[assignment]
        with contextlib.suppress(OSError):  # a test has closed it
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if self.thread:
            self.thread.join(60)

    def handle(self, **content: Any) -> Any:
        return self.server._handle_message({"unit": "qwen", "nonce": "n", **content}, SKEW)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[LoneCoordinator]:
    made = LoneCoordinator(tmp_path, 7)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"unit": "other", "kind": "status"}, "it is not about unit qwen"),
        ({"nonce": None, "kind": "status"}, "it is not about unit qwen"),
        ({"kind": "restart"}, "its kind is unknown"),
        ({"kind": "desired_state", "desired_state": "sideways"}, "its kind is unknown"),
        ({}, "its kind is unknown"),
        (REPORT | {"rank": 2}, "the unit has no rank 2"),
        (REPORT | {"rank": -1}, "the unit has no rank -1"),
        (REPORT | {"rank": True}, "the unit has no rank True"),
        (REPORT | {"rank": "x" * 100}, f"the unit has no rank '{'x' * 36}..."),
        (REPORT | {"clean": 1}, "the report has no valid clean"),
    ],
)
def test_a_message_that_is_not_understood_is_refused(
    coordinator: LoneCoordinator, content: dict[str, Any], reason: str
) -> None:
    with pytest.raises(serve_unit.ServeError) as refused:
        coordinator.handle(**content)
    assert str(refused.value) == reason


def test_a_report_is_that_of_its_rank(coordinator: LoneCoordinator) -> None:
    for rank in (0, 1):
        assert coordinator.handle(**REPORT | {"rank": rank}) == {"order": "stop", "generation": 0}
    assert sorted(coordinator.lifecycle.reports) == [0, 1]
    assert coordinator.lifecycle.reports[1].skew == SKEW


def test_a_status_says_whose_files_the_unit_has(coordinator: LoneCoordinator) -> None:
    found = coordinator.handle(kind="status")
    assert (found["previous"], found["state"], found["name"]) == (7, "down", "qwen")


def test_desired_states_are_logged_and_answered(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert coordinator.handle(kind="desired_state", desired_state="up", anyway=True) == {
        "done": True,
        "text": "unit qwen is starting: generation 1",
    }
    assert coordinator.lifecycle.record.anyway
    assert coordinator.handle(kind="desired_state", desired_state="down") == {
        "done": True,
        "text": "unit qwen is stopping",
    }
    assert capsys.readouterr().out == (
        "desired state up: unit qwen is starting: generation 1\ndesired state down: unit qwen is stopping\n"
    )


@pytest.mark.parametrize("anyway", ["yes", 1, None, False])
def test_only_true_means_anyway(coordinator: LoneCoordinator, anyway: object) -> None:
    coordinator.handle(kind="desired_state", desired_state="up", anyway=anyway)
    assert not coordinator.lifecycle.record.anyway


@pytest.mark.parametrize("state", ["down", "held"])
def test_a_unit_whose_key_cannot_be_read_is_not_started(coordinator: LoneCoordinator, state: str) -> None:
    coordinator.key.chmod(0o644)
    coordinator.lifecycle.record.state = state
    answer = coordinator.handle(kind="desired_state", desired_state="up")
    fault = f"{coordinator.key}: owner or mode 644 is wrong: set owner root, mode 600"
    assert answer == {"done": False, "text": f"unit qwen is not started: {fault}"}
    assert coordinator.lifecycle.record.generation == 0


def test_a_unit_that_runs_needs_no_key_for_a_desired_state(coordinator: LoneCoordinator) -> None:
    coordinator.handle(kind="desired_state", desired_state="up")
    coordinator.key.unlink()
    assert coordinator.handle(kind="desired_state", desired_state="up")["done"]
    assert coordinator.handle(kind="desired_state", desired_state="down")["done"]


def test_commands_and_agents_are_answered_over_a_connection(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.serve()
    main = [coordinator.file, "status"]
    assert serve_coordinator.main(main) == 0
    assert json.loads(capsys.readouterr().out)["previous"] == 7
    assert serve_coordinator.main([coordinator.file, "up"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "unit qwen is starting: generation 1"
    address = coordinator.unit.head
    answer = serve_unit.ask(coordinator.unit, SECRET, REPORT, 60, "127.0.0.2")
    assert answer == {"order": "gate", "generation": 1}
    assert abs(coordinator.lifecycle.reports[1].skew.ahead) < 60
    with socket.create_connection(address, 60, ("127.0.0.3", 0)) as stranger:
        assert stranger.recv(100) == b""
    assert "a connection from 127.0.0.3 is refused: its address is not in the unit\n" in capsys.readouterr().out
    with pytest.raises(ConnectionResetError):
        serve_unit.ask(coordinator.unit, b"x" * 64, REPORT, 60, "127.0.0.2")
    until = time.monotonic() + 60
    reported = ""
    while "a connection from 127.0.0.2 is refused: wrong authentication code\n" not in reported:
        assert time.monotonic() < until
        reported += capsys.readouterr().out
        time.sleep(0.01)
    assert coordinator.server._unproven == {"127.0.0.1": {}, "127.0.0.2": {}}


def test_a_command_whose_desired_state_is_refused_fails_with_the_reason(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.serve()
    coordinator.key.unlink()
    assert serve_coordinator.main([coordinator.file, "up", "--anyway"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"unit qwen is not started: {coordinator.key}: No such file or directory\n")


def test_a_coordinator_that_does_not_answer_is_named_with_its_address(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.server.listener.close()
    assert serve_coordinator.main([coordinator.file, "down"]) == 1
    place = f"127.0.0.1:{coordinator.unit.head[1]}"
    said = f"serve-coordinator: the coordinator of unit qwen does not answer at {place}: Connection refused\n"
    assert capsys.readouterr().err == said
    assert serve_coordinator.main(["/nowhere/qwen.json", "down"]) == 1
    assert capsys.readouterr().err == "serve-coordinator: /nowhere/qwen.json: No such file or directory\n"


def test_a_coordinator_whose_address_is_taken_does_not_run(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, _: handlers.append(number))
    folder = Path(coordinator.file).parent
    assert serve_coordinator.main([coordinator.file, "run", "--state", str(folder / "state")]) == 1
    assert "Address already in use" in capsys.readouterr().err
    assert handlers == [signal.SIGTERM]


def test_a_refusal_is_logged_once_a_minute_for_each_reason(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for address, reason in (
        *(("127.0.0.1", "a"), ("127.0.0.1", "a"), ("127.0.0.2", "a"), ("127.0.0.1", "b")),
        *(("10.0.0.8", "s"), ("10.0.0.9", "s")),
    ):
        coordinator.server._log_refusal(address, reason)
    assert capsys.readouterr().out.splitlines() == [
        f"a connection from {address} is refused: {reason}"
        for address, reason in (("127.0.0.1", "a"), ("127.0.0.2", "a"), ("127.0.0.1", "b"), ("10.0.0.8", "s"))
    ]
    for clock[0] in (1059.0, 1060.0):
        coordinator.server._log_refusal("127.0.0.1", "a")
    assert capsys.readouterr().out.count("\n") == 1


def test_of_connections_without_a_proof_the_oldest_are_ended(
    coordinator: LoneCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [socket.socketpair() for _ in range(66)]
    try:
        for ours, _ in pairs[:64]:
            coordinator.server._make_room(ours, "127.0.0.2")
        assert capsys.readouterr().out == ""
        for ours, _ in pairs[64:]:
            coordinator.server._make_room(ours, "127.0.0.2")
        assert [theirs.recv(1) for _, theirs in pairs[:2]] == [b"", b""]
        assert list(coordinator.server._unproven["127.0.0.2"]) == [ours for ours, _ in pairs[2:]]
        coordinator.server._end_unproven(pairs[2][0], "127.0.0.2")
        coordinator.server._end_unproven(pairs[0][0], "127.0.0.2")
        assert len(coordinator.server._unproven["127.0.0.2"]) == 63
    finally:
        for pair in pairs:
            for end in pair:
                end.close()
    assert capsys.readouterr().out == (
        "a connection from 127.0.0.2 is refused: the oldest of more than 64 without a proof; a process there opens "
        "them\n"
    )


# The prober


class Request:
    """A request that notes its end."""

    ended = False

    def cancel(self) -> None:
        self.ended = True


def prober(unit: SteppedUnit) -> Any:
    return serve_coordinator.Prober(unit.unit, unit.lifecycle, threading.Lock(), lambda: unit.clock, lambda _: None)


@pytest.mark.parametrize(("generation", "down", "ended"), [(1, False, False), (0, False, True), (1, True, True)])
def test_a_request_to_a_generation_that_no_longer_runs_is_ended(
    tmp_path: Path, generation: int, down: bool, ended: bool
) -> None:
    unit = SteppedUnit(tmp_path)
    unit.up()
    probes = prober(unit)
    probes.cancel_stale()
    request = probes._request = Request()
    probes._generation = generation
    if down:
        unit.lifecycle.set_desired_state("down", False, unit.clock)
    probes.cancel_stale()
    assert request.ended is ended


def test_a_fault_of_the_probe_is_logged_when_it_begins_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = SteppedUnit(tmp_path)
    probes = prober(unit)
    probes._set_probe_fault("no key")
    assert (unit.lifecycle.probe_fault, capsys.readouterr().out) == ("", ""), "the unit does not run"
    unit.up()
    for text in ("no key", "no key", "", ""):
        probes._set_probe_fault(text)
        assert unit.lifecycle.probe_fault == text
    assert capsys.readouterr().out == "no key\ncompletions can be asked for again\n"


def test_nothing_is_asked_of_a_unit_that_does_not_run_or_before_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = SteppedUnit(tmp_path)
    probes = prober(unit)
    done: list[str] = []
    for name in ("_prove_start", "_count_open_requests", "_judge_failure", "_send_question"):
        monkeypatch.setattr(probes, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(probes, "_read_progress", dict)
    probes.step()
    assert done == []
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    probes._due, probes._seen, probes._failed = unit.clock + 100, {"a": 1.0}, "x"
    probes.step()
    assert done == [], "its gates run"
    unit.pass_by(8)
    probes.step()
    assert (done, probes._seen, probes._failed, probes._generation) == (["_prove_start"], {}, "", 1)
    unit.prove()
    probes._due = unit.clock + 1
    probes.step()
    assert done == ["_prove_start"], "it is not due"
    probes._due = unit.clock
    probes.step()
    probes._failed = "x"
    probes.step()
    assert done == ["_prove_start", "_send_question", "_judge_failure"]


@pytest.fixture
def proven(tmp_path: Path) -> SteppedUnit:
    """A unit that serves."""
    unit = SteppedUnit(tmp_path)
    unit.up()
    return unit


def completing(
    unit: SteppedUnit, monkeypatch: pytest.MonkeyPatch, fault: Exception | None, progress: dict[str, float]
) -> Any:
    """A prober whose completion takes 3 s and fails so, if it does; the engine's metrics are `progress`."""
    probes = prober(unit)
    probes._generation = unit.record.generation

    def prove(*_: object, **_also: object) -> int:
        unit.clock += 3
        if fault:
            raise fault
        return 0

    monkeypatch.setattr(serve_probe, "prove", prove)
    monkeypatch.setattr(probes, "_read_progress", lambda: dict(progress))
    return probes


@pytest.mark.parametrize(
    ("fault", "due", "misses", "fault_said", "failed"),
    [
        (None, 63, 0, "", ""),
        (serve_probe.OwnFaultError("no key"), 63, 0, "no completion can be asked for: no key", ""),
        (serve_probe.KeyFileError("no file"), 63, 0, "no completion can be asked for: no file", ""),
        (serve_probe.BusyError("full"), 63, 0, "", ""),
        (serve_answers.WrongAnswerError("it is empty"), 13, 1, "", ""),
        (serve_unit.ServeError("no answer"), 60, 0, "", "no answer"),
    ],
)
def test_what_a_completion_shows_of_a_unit_that_serves(
    proven: SteppedUnit,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception | None,
    due: float,
    misses: int,
    fault_said: str,
    failed: str,
) -> None:
    begun = proven.clock
    probes = completing(proven, monkeypatch, fault, {"a": 5.0})
    proven.lifecycle.probe_fault = "of before"
    probes._send_question(1, 60.0)
    assert (probes._due - begun, proven.lifecycle.misses) == (due, misses)
    assert (proven.lifecycle.probe_fault, probes._failed) == (fault_said, failed)
    if isinstance(fault, serve_probe.BusyError):
        assert proven.record.reason == "the engine takes no more requests now: full"
    seen = {} if misses or fault_said or isinstance(fault, serve_probe.BusyError) else {"a": 5.0}
    assert probes._seen == seen
    assert proven.record.figures["completion_s"] == (3.0 if fault is None else 0.5)


def test_what_moved_since_the_first_miss_is_progress_at_the_second(
    proven: SteppedUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven.lifecycle.missed(1, "no answer", proven.clock)
    probes = completing(proven, monkeypatch, serve_unit.ServeError("no answer"), {"a": 5.0})
    probes._seen = {"a": 4.0}
    probes._send_question(1, 60.0)
    assert probes._seen == {"a": 4.0}
    probes._seen = {}
    probes._send_question(1, 60.0)
    assert probes._seen == {"a": 5.0}


COUNTER = "vllm:generation_tokens_total"


@pytest.mark.parametrize(("rises", "due", "misses", "state"), [(True, 60, 0, "busy"), (False, 10, 1, "ready")])
def test_a_completion_that_failed_is_a_miss_unless_a_counter_rose(
    proven: SteppedUnit, monkeypatch: pytest.MonkeyPatch, rises: bool, due: float, misses: int, state: str
) -> None:
    probes = completing(proven, monkeypatch, None, {COUNTER: 5.0 + rises})
    probes._seen, probes._failed = {COUNTER: 5.0}, "no answer"
    probes._judge_failure(1)
    assert (probes._due - proven.clock, probes._failed) == (due, "")
    assert (proven.lifecycle.misses, proven.record.state) == (misses, state)
    assert probes._seen == {COUNTER: 5.0 + rises}
    if misses:
        assert proven.lifecycle.last_probe == "no answer"
    else:
        assert proven.record.reason == "counters rise"


@pytest.mark.parametrize(("rises", "misses", "asked"), [(True, 0, False), (False, 0, True), (False, 1, True)])
def test_a_unit_whose_counters_rise_is_not_asked_for_a_completion(
    proven: SteppedUnit, monkeypatch: pytest.MonkeyPatch, rises: bool, misses: int, asked: bool
) -> None:
    probes = completing(proven, monkeypatch, None, {COUNTER: 5.0 + rises})
    done: list[Any] = []
    monkeypatch.setattr(probes, "_send_question", lambda *words: done.append(words))
    probes._seen = {COUNTER: 5.0}
    proven.lifecycle.misses = misses
    monkeypatch.setattr(probes, "_read_progress", lambda: {COUNTER: 5.0 + rises, "other": 1.0})
    probes.step()
    assert done == ([(1, 60.0)] if asked else [])
    kept = {COUNTER: 5.0} if misses else {COUNTER: 5.0 + rises, "other": 1.0}
    assert probes._seen == kept
    if not asked:
        assert probes._due == proven.clock + proven.unit.times.busy_interval
        assert (proven.record.state, proven.record.reason) == ("busy", "counters rise")


@pytest.mark.parametrize(
    ("fault", "runs", "state", "due", "fault_said"),
    [
        (None, True, "ready", 60, ""),
        (None, False, "starting", 2, ""),
        (serve_probe.KeyFileError("no file"), True, "starting", 2, "no completion can be asked for: no file"),
        (serve_unit.ServeError("Connection refused"), True, "starting", 2, ""),
        (serve_probe.OwnFaultError("HTTP status 404"), True, "starting", 2, ""),
        (serve_answers.WrongAnswerError("it is empty"), True, "starting", 2, ""),
    ],
)
def test_what_a_completion_shows_of_a_unit_that_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception | None,
    runs: bool,
    state: str,
    due: float,
    fault_said: str,
) -> None:
    unit = SteppedUnit(tmp_path, probe={"kind": "completion"})
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    if not runs:
        unit.lifecycle.reports.pop(1)
    probes = completing(unit, monkeypatch, fault, {"a": 5.0})
    unit.lifecycle.probe_fault = "of before"
    probes._prove_start(1)
    assert (unit.record.state, probes._due - unit.clock) == (state, due)
    assert unit.lifecycle.probe_fault == fault_said
    wrong = isinstance(fault, serve_answers.WrongAnswerError)
    assert unit.lifecycle.misses == int(wrong)
    reported = str(fault) if fault and not fault_said else "no completion was tried"
    assert unit.lifecycle.last_probe == reported
    if fault is None:
        assert probes._seen == {"a": 5.0}
        assert unit.record.figures["completion_s"] == 3.0


def test_the_requests_of_a_unit_that_drains_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = SteppedUnit(tmp_path, times={"drain": 30.0})
    unit.up()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    limits: list[float] = []
    slept: list[float] = []
    probes = serve_coordinator.Prober(unit.unit, unit.lifecycle, threading.Lock(), lambda: unit.clock, slept.append)

    def requests(_unit: object, request: Any) -> int:
        limits.append(request._limit)
        return 3

    monkeypatch.setattr(serve_probe, "requests", requests)
    probes.step()
    assert (unit.lifecycle.requests, limits, slept) == (3, [5.0], [1.0])
