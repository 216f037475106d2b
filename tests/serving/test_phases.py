"""Phases of a start: what an agent reads of them, and what a coordinator makes of the reports of all ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.engine.start_lines import PHASES
from serving.engines.registry import ENGINES
from tests.serving.serve_modules import serve_agent, serve_lifecycle, serve_phases, serve_unit
from tests.serving.stepped_unit import SteppedUnit, gating, report
from tests.serving.test_agent import LoneAgent
from tests.serving.test_unit_file import MINIMAL, written

BEGIN = 1_700_000_000.0


def lines_of(engine: str) -> dict[str, dict[str, str]]:
    """The section `phases` of a unit file."""
    return {phase: dict(lines) for phase, lines in ENGINES[engine].phases.items()}


class Journal:
    """A journal of a start at BEGIN. `entries`: seconds after it, program, message."""

    def __init__(self, folder: Path, engine: str, *entries: tuple[float, str, object]) -> None:
        self.calls, self.file = folder / "journal-calls", folder / "journal-entries"
        self.script = folder / "journalctl.sh"
        self.script.write_text(f'echo "$*" >> {self.calls}\ncat {self.file}\n')
        self.file.write_text("")
        for at, program, message in entries:
            self.add(at, message, program)
        marks = serve_phases.marks_of("phases", lines_of(engine))
        self.reader = serve_phases.PhaseReader(["sh", str(self.script)], marks, BEGIN)

    def add(self, at: float, message: object, program: str = "serve-run.sh") -> None:
        entry = {"__REALTIME_TIMESTAMP": str(round((BEGIN + at) * 1e6)), "MESSAGE": message}
        with self.file.open("a") as file:
            file.write(json.dumps({**entry, "SYSLOG_IDENTIFIER": program}) + "\n")

    def read(self, now: float = 0.0, *, loaded: bool = False) -> dict[str, tuple[float | None, float | None]]:
        """The phases after a reading, in seconds after BEGIN."""
        self.reader.read("abc", now, 60.0, loaded=loaded)
        times: dict[str, tuple[float | None, float | None]] = self.reader.times
        return {
            phase: (one[0] and round(one[0] - BEGIN, 3), one[1] and round(one[1] - BEGIN, 3))
            for phase, one in times.items()
        }


VLLM = (
    (1.0, "serve_start_gate.py", "spark1: ready"),
    (14.0, "serve-run.sh", "(APIServer pid=1) INFO 11-26 20:15:04 [utils.py:325] vLLM API server version 0.32.0"),
    (
        *(30.0, "serve-run.sh"),
        "(EngineCore pid=99) INFO world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29501",
    ),
    (
        *(41.0, "serve-run.sh"),
        "(EngineCore pid=99) INFO [parallel_state.py:2351] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0",
    ),
    (42.0, "serve-run.sh", "INFO [gpu_model_runner.py:5040] Starting to load model /models/qwen..."),
    (190.0, "serve-run.sh", "INFO [default_loader.py:502] Loading weights took 147.10 seconds"),
    (194.0, "serve-run.sh", "INFO [gpu_model_runner.py:5150] Model loading took 57.64 GiB memory and 151.5 seconds"),
    (260.0, "serve-run.sh", "INFO [monitor.py:53] torch.compile took 41.25 s in total"),
    (300.0, "serve-run.sh", list(b"INFO Graph capturing finished in 7 secs, took 0.10 GiB \xe2\x96\x88")),
    (310.0, "serve-run.sh", "INFO:     Application startup complete."),
)


def test_the_lines_of_vllm_tell_each_phase(tmp_path: Path) -> None:
    """Graphs and a compilation from the cache print no begin: their own seconds tell it."""
    assert Journal(tmp_path, "vllm", *VLLM).read() == {
        "container": (1.0, 14.0),
        "rendezvous": (30.0, 41.0),
        "weights": (42.0, 194.0),
        "compile": (218.75, 260.0),
        "graphs": (293.0, 300.0),
        "answer": (310.0, None),
    }


def test_an_agent_that_sees_only_the_latest_lines_of_a_day_does_not_know_when_the_engine_began(tmp_path: Path) -> None:
    """An agent that begins again on a unit that serves reads as many lines as one reading may have."""
    served = [(86_400.0 + at, "serve-run.sh", 'INFO: "POST /v1/completions" 200 OK') for at in range(5000)]
    assert Journal(tmp_path, "vllm", *served).read(loaded=True) == {}


def test_the_lines_of_sglang_tell_each_phase_over_all_its_models(tmp_path: Path) -> None:
    """A second model, which drafts tokens, opens weights and graphs again. It prints nothing of what it compiles."""
    found = Journal(
        tmp_path,
        "sglang",
        *((at, "serve-run.sh", f"[2026-11-26 20:15:04 TP0] {text}") for at, text in (
            (9.0, "server_args=ServerArgs(model_path='/models/x')"),
            (20.0, "Init torch distributed begin."),
            (25.0, "Init torch distributed ends. elapsed=5.00 s"),
            (26.0, "Load weight begin. avail mem=110.00 GB"),
            (126.0, "Load weight end. elapsed=100.00 s, type=Nemotron, mem usage=40.00 GB."),
            (130.0, "Capture cuda graph begin. This can take up to several minutes. avail mem=40.00 GB"),
            (140.0, "Capture cuda graph end. Time elapsed: 10.00 s."),
            (141.0, "Load weight begin. avail mem=39.00 GB"),
            (151.0, "Load weight end. elapsed=10.00 s, type=Draft, mem usage=2.00 GB."),
            (152.0, "Capture draft decode CUDA graph begin. backend=full"),
        )),
    )  # fmt: skip
    assert found.read() == {
        "container": (0.0, 9.0),
        "rendezvous": (20.0, 25.0),
        "weights": (26.0, 151.0),
        "graphs": (130.0, None),
    }


def test_the_lines_of_llama_cpp_tell_what_it_has(tmp_path: Path) -> None:
    found = Journal(tmp_path, "llama.cpp", *((at, "serve-run.sh", text) for at, text in (
        (2.0, "build: 11549 with GNU 13.3.0 for Linux aarch64"),
        (3.0, "srv    load_model: loading model '/models/x/a.gguf'"),
        (4.0, "llama_model_loader: loaded meta data with 25 key-value pairs and 197 tensors"),
        (33.5, "main: model loaded"),
        (33.6, "main: server is listening on http://10.0.0.1:8000"),
    )))  # fmt: skip
    assert found.read() == {"container": (0.0, 2.0), "weights": (3.0, 33.5), "answer": (33.6, None)}


@pytest.mark.parametrize("engine", sorted(PHASES))
def test_the_stand_in_prints_what_the_engine_is_known_to_print(engine: str) -> None:
    """Each mark of an engine has a line of the stand-in, but for a begin that the seconds of its end tell."""
    marks = ENGINES[engine].phases
    assert set(PHASES[engine]) == set(marks) - {"answer"}
    for phase, (begin, end) in PHASES[engine].items():
        assert re.search(marks[phase]["end"], end), phase
        assert not begin or re.search(marks[phase]["begin"], begin), phase


def test_an_engine_of_which_no_lines_are_known_has_its_container_only(tmp_path: Path) -> None:
    assert ENGINES["custom"].phases == {}
    assert Journal(tmp_path, "custom", *VLLM).read() == {"container": (1.0, 14.0)}


def test_the_journal_is_read_every_10_s_from_its_latest_entry_and_once_when_the_unit_is_ready(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "vllm", *VLLM[:6])
    assert journal.read(100.0)["weights"] == (42.0, None)
    journal.add(194.0, VLLM[6][2])
    for now in (101.0, 109.9):
        assert journal.read(now)["weights"] == (42.0, None)
    assert journal.read(110.0)["weights"] == (42.0, 194.0)
    journal.add(310.0, VLLM[9][2])
    assert journal.read(111.0, loaded=True)["answer"] == (310.0, None)
    journal.add(311.0, VLLM[7][2])
    assert "compile" not in journal.read(200.0, loaded=True), "a unit that serves is not read"
    calls = [re.search(r"--since=@(\d+) ", call) for call in journal.calls.read_text().splitlines()]
    assert [call and int(call[1]) - BEGIN for call in calls] == [0, 190, 194]


def test_an_entry_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    """The next reading begins within the second of the latest entry."""
    journal = Journal(tmp_path, "sglang", (5.1, "serve-run.sh", "Load weight begin"))
    assert journal.read()["weights"] == (5.1, None)
    journal.add(5.2, "Load weight end")
    assert journal.read(20.0)["weights"] == (5.1, 5.2)
    assert journal.read(40.0)["weights"] == (5.1, 5.2)


def test_a_journal_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "vllm", *VLLM)
    journal.file.write_text('7\n[1]\n{"MESSAGE": "Starting to load model x"}\nnonsense\n')
    assert journal.read() == {}
    marks = serve_phases.marks_of("phases", lines_of("vllm"))
    reader = serve_phases.PhaseReader([str(tmp_path / "absent")], marks, BEGIN)
    reader.read("abc", 0.0, 60.0, loaded=False)
    assert reader.times == {}


def test_only_a_rank_that_runs_and_whose_start_is_known_is_read(lone: LoneAgent) -> None:
    """By the answer of the coordinator: the order to run, of the same generation."""
    entry = {"__REALTIME_TIMESTAMP": f"{BEGIN + 3:.0f}000000", "MESSAGE": "INFO", "SYSLOG_IDENTIFIER": "serve-run.sh"}
    lone.journal.write_text(f"echo '{json.dumps(entry)}'\n")
    agent = lone.agent
    agent.record = serve_agent.RankRecord("boot1", 5, running=True, started=BEGIN)
    agent._read_phases(loaded=False)
    assert agent._make_report()["phases"] == {}, "its invocation is not known"
    agent.record.invocation = "abc"
    agent._read_phases(loaded=False)
    assert agent._make_report()["phases"] == {"container": (BEGIN, BEGIN + 3)}
    agent.record.generation = 6
    assert agent._make_report()["phases"] == {}, "those of an earlier start"


@pytest.fixture
def lone(tmp_path: Path) -> LoneAgent:
    return LoneAgent(tmp_path)


@pytest.mark.parametrize(
    "phases",
    [[], {"lunch": {}}, {"weights": "x"}, {"weights": {"start": "x"}}, {"weights": {"begin": "("}}, {"gates": {}}],
)
def test_marks_that_are_none_are_refused_with_their_place(phases: object) -> None:
    with pytest.raises(serve_unit.ServeError, match=r"^qwen: phases: "):
        serve_phases.marks_of("qwen: phases", phases)


@pytest.mark.parametrize(
    "phases",
    [[], {"lunch": [1.0, 2.0]}, {"weights": [1.0]}, {"weights": "ab"}, {"weights": [True, 2.0]}, {"weights": [0, 1]}],
)
def test_garbled_phases_of_a_report_are_refused(phases: object) -> None:
    with pytest.raises(serve_unit.ServeError, match="the report has no valid phases"):
        serve_phases.reported(phases)


@pytest.mark.parametrize(
    "phases",
    [
        {"lunch": {"begin": 1.0, "seconds": 1.0}},
        {"weights": 1},
        {"weights": {"begin": 1.0}},
        {"weights": {"begin": "1", "seconds": 1}},
    ],
)
def test_garbled_phases_of_a_record_are_refused(phases: object) -> None:
    with pytest.raises(serve_unit.ServeError, match="the state file: phases"):
        serve_lifecycle.UnitRecord.of({"phases": phases}, "qwen")


def test_a_unit_file_of_an_earlier_version_has_no_phases(tmp_path: Path) -> None:
    assert serve_unit.load_unit(written(tmp_path, MINIMAL)).phases == {}


# The coordinator


def started(unit: SteppedUnit) -> float:
    """Let all gates pass after 3 s; the time then."""
    gating(unit)
    assert unit.record.phases == {"gates": {"begin": unit.clock, "seconds": None}}
    unit.clock += 3
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert unit.record.phases == {"gates": {"begin": unit.clock - 3, "seconds": 3.0}}
    return unit.clock


def runs(unit: SteppedUnit, rank: int, **phases: Any) -> None:
    report(unit, rank, state="running", generation=1, phases=phases)


def test_a_phase_is_that_of_all_ranks_by_the_clock_of_the_head(unit: SteppedUnit) -> None:
    at = started(unit)
    unit.skews[1] = serve_lifecycle.ClockSkew(0.5, 0.01)
    runs(unit, 0, weights=(at + 10, at + 60))
    assert set(unit.record.phases) == {"gates"}, "the other rank has not reported"
    runs(unit, 1, weights=(at + 8.5, None))
    assert unit.record.phases["weights"] == {"begin": at + 8, "seconds": None}, "one rank still loads"
    assert unit.saved["phases"] == unit.record.phases
    runs(unit, 1, weights=(at + 8.5, at + 90.5))
    assert unit.record.phases["weights"] == {"begin": at + 8, "seconds": 82.0}
    assert "graphs" not in unit.record.phases, "not seen, so unknown"
    assert unit.saved["phases"] == unit.record.phases


def test_a_second_model_opens_a_phase_again(unit: SteppedUnit) -> None:
    at = started(unit)
    for rank in (0, 1):
        runs(unit, rank, weights=(at + 1, at + 50))
    assert unit.record.phases["weights"]["seconds"] == 49.0
    runs(unit, 0, weights=(at + 1, None))
    assert unit.record.phases["weights"]["seconds"] is None
    runs(unit, 0, weights=(at + 1, at + 61))
    assert unit.record.phases["weights"]["seconds"] == 60.0


def test_the_first_answer_begins_when_the_engine_listens_and_ends_with_the_proof(unit: SteppedUnit) -> None:
    at = started(unit)
    unit.running = {0: 1, 1: 1}
    runs(unit, 0, answer=(at + 4, None))
    runs(unit, 1)
    unit.clock = at + 10
    unit.lifecycle.proved(1, 0.5, False, unit.clock)
    assert unit.record.state == "ready"
    assert unit.record.phases["answer"] == {"begin": at + 4, "seconds": None}
    unit.clock += 2
    runs(unit, 0, answer=(at + 4, None))
    assert unit.record.phases["answer"] == {"begin": at + 4, "seconds": 6.0}
    assert unit.saved["phases"] == unit.record.phases


def test_what_was_known_of_a_start_is_not_lost_by_an_agent_that_came_back(unit: SteppedUnit) -> None:
    at = started(unit)
    unit.running = {0: 1, 1: 1}
    for rank in (0, 1):
        runs(unit, rank, weights=(at + 1, at + 50), graphs=(at + 60, at + 70))
    unit.lifecycle.proved(1, 0.5, False, unit.clock)
    known = dict(unit.record.phases)
    for phases in ({}, {"weights": (at + 40, at + 50), "graphs": (at + 60, None)}):
        runs(unit, 0, **phases)
        runs(unit, 1, **phases)
        assert unit.record.phases == known


def test_the_next_start_begins_without_the_phases_of_the_one_before(unit: SteppedUnit) -> None:
    unit.up()
    unit.record.phases["weights"] = {"begin": 1.0, "seconds": 9.0}
    assert unit.lifecycle.set_desired_state("down", False, unit.clock)[0]
    unit.pass_by(8)
    assert unit.record.state == "down"
    assert unit.record.phases["weights"]["seconds"] == 9.0, "the latest start is what is shown"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    assert set(unit.record.phases) == {"gates"}
