"""What `serve tune` tries, how it judges, and its ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.model import load, yaml_editor
from core.util.command_error import CommandError
from sparkrack.serving import tune_judgement as judgement
from sparkrack.serving import tune_ledger
from sparkrack.serving.coordinator import CoordinatorStatus
from sparkrack.serving.tune_ledger import (
    TrialJudged,
    TrialRun,
    TrialStarted,
    TriedValue,
    TuneBegun,
    TuneEnded,
    last_ledger,
    new_ledger,
)
from sparkrack.serving.tune_tries import Try, candidate, parse_tries
from tests.serving.serve_modules import serve_causes
from tests.unit.cli.serve_rack import answer
from tests.unit.model.serving_racks import put, record, text, unit


def test_values_have_the_types_of_yaml_and_variables_are_texts() -> None:
    found = parse_tries(['args.a.b=1,0.5,true,"x,y",eager', "env.LEVEL=01,true", "memory=0.85"])
    assert found == (
        *(Try("args.a.b", value) for value in (1, 0.5, True, "x,y", "eager")),
        *(Try("env.LEVEL", value) for value in ("01", "true")),
        Try("memory", 0.85),
    )
    assert found[0].place("qwen") == ("serving", "units", "qwen", "args", "a.b")
    assert [str(one) for one in found[2:4]] == ["args.a.b=true", "args.a.b=x,y"]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("memory", "write KEY=VALUE"),
        ("memory=", "write KEY=VALUE"),
        ("probe.answer=false", "is not a key that is tuned; write one of args.NAME, env.NAME, context, "),
        ("args=1", "is not a key that is tuned"),
        ("args.a=[1]", "are not scalars of YAML"),
        ("args.a=null", "are not scalars of YAML"),
        ("args.a=1]", "are not scalars of YAML"),
        ("args.a=1,1", "a value is named twice"),
    ],
)
def test_what_is_not_a_value_to_try_is_refused(word: str, why: str) -> None:
    with pytest.raises(CommandError, match=r"^--try") as refused:
        parse_tries([word])
    assert why in str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A unit that fits, with one option, one variable and a comment."""
    declared = unit(args={"max-num-batched-tokens": 8192}, env={"OMP_NUM_THREADS": "4"})
    models = {"qwen": record("Qwen3-235B-A22B-NVFP4", 134_000_000_000)}
    path = put(tmp_path, text({"qwen": declared}), models)
    path.write_text(
        path.read_text().replace("max-num-batched-tokens: 8192", "max-num-batched-tokens: 8192   # as reported")
    )
    return path


def refused_line(file: Path, word: str) -> str:
    (tried,) = parse_tries([word])
    return candidate(yaml_editor.snapshot(file), load(file), "qwen", tried).refused


@pytest.mark.parametrize(
    ("word", "before", "after"),
    [
        (
            "args.max-num-batched-tokens=4096",
            "max-num-batched-tokens: 8192   # as reported",
            "max-num-batched-tokens: 4096   # as reported",
        ),
        ("env.OMP_NUM_THREADS=08", "OMP_NUM_THREADS: '4'", "OMP_NUM_THREADS: '08'"),
        ("memory=0.85", "memory: 0.8\n", "memory: 0.85\n"),
        (
            "args.enforce-eager=true",
            "        max-num-batched-tokens",
            "        enforce-eager: true\n        max-num-batched-tokens",
        ),
        ("env.MKL_NUM_THREADS=1", "        OMP_NUM_THREADS", "        MKL_NUM_THREADS: '1'\n        OMP_NUM_THREADS"),
        ("parallel.expert=true", "        tensor: 2", "        expert: true\n        tensor: 2"),
    ],
)
def test_a_trial_differs_from_rack_yaml_in_one_value(file: Path, word: str, before: str, after: str) -> None:
    (tried,) = parse_tries([word])
    written = file.read_text()
    found = candidate(yaml_editor.snapshot(file), load(file), "qwen", tried)
    assert found.refused == ""
    assert before in written
    assert found.text == written.replace(before, after)
    assert file.read_text() == written


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("args.max-num-batched-tokens=8192", "it is what rack.yaml declares"),
        ("memory=0.99", "rack.yaml:"),
        ("args.no-such-option=8", "no-such-option"),
        ("memory=0.6", "needs 76.3 GiB a node"),
        ("parallel.tensor=3", "rack.yaml:"),
        ("sequences=eight", "rack.yaml:"),
    ],
)
def test_what_check_refuses_is_not_tried(file: Path, word: str, why: str) -> None:
    line = refused_line(file, word)
    assert line
    assert why in line
    assert "\n" not in line


def test_a_true_is_not_a_one(file: Path) -> None:
    flag = "enforce-eager: true\n        max-num-batched-tokens: 8192"
    file.write_text(file.read_text().replace("max-num-batched-tokens: 8192", flag))
    assert refused_line(file, "args.enforce-eager=1") != "it is what rack.yaml declares"
    assert refused_line(file, "args.enforce-eager=true") == "it is what rack.yaml declares"


@pytest.mark.parametrize(
    ("before", "now", "better"),
    [
        ((10.0, 10.0, 10.0), (10.1, 10.1, 10.1), True),
        ((10.0, 10.0, 10.0), (10.0, 10.0, 10.0), False),
        ((9.5, 10.0, 10.5), (11.0, 11.0, 11.0), False),
        ((9.5, 10.0, 10.5), (11.1, 11.1, 8.0), True),
        ((9.5, 10.0, 10.5), (20.0, 9.0, 9.0), False),
    ],
)
def test_better_is_more_than_the_spread_before(before: tuple[float, ...], now: tuple[float, ...], better: bool) -> None:
    assert judgement.is_better(before, now) == better


def test_a_node_has_a_margin_above_the_floor_of_the_guard() -> None:
    assert judgement.short_memory({"n0": 4.0, "n1": 9.0}, 3.0) == ""
    assert judgement.short_memory({"n0": 9.0, "n1": 3.9}, 3.0) == "n1 had 3.9 GiB available, and 4.0 GiB must be left"


def status(*transitions: tuple[str, str], generation: int = 7) -> CoordinatorStatus:
    found = answer("ready")
    found["transitions"] = [[1.0 + at, state, generation, reason] for at, (state, reason) in enumerate(transitions)]
    return CoordinatorStatus.model_validate(found)


XID = "n0: NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus."
GUARD = "n1: sparkrack-memory-guard: 2999 MiB available, ended every container of unit qwen, "
STUCK = ("stuck", "2 completions in a row failed and no counter rose: no answer within 60 s")
GARBAGE = ("stopping", "the answer is '!!!!', it repeats '!' without end")
ENDED = ("stopping", "n1 (rank 1) ended without being asked to: exit code 1")


@pytest.mark.parametrize(
    ("transitions", "kernel", "cause"),
    [
        ((STUCK,), XID, "driver"),
        ((ENDED,), GUARD, "memory"),
        ((ENDED,), "n0: Out of memory: Killed process 12 (python3)", "memory"),
        ((STUCK,), "", "hang"),
        ((("stopping", "no correct completion within 5400 s: Connection refused"),), "", "hang"),
        ((GARBAGE,), "", "answer"),
        ((ENDED,), "n0: NVRM: Xid (PCI:000f:01:00): 43, pid=1", "end"),
        ((), "", "bench"),
    ],
)
def test_a_failure_has_the_cause_that_nodes_and_coordinator_show(
    transitions: tuple[tuple[str, str], ...], kernel: str, cause: str
) -> None:
    found = status(("starting", "all gates passed"), *transitions)
    assert judgement.cause_of(found, 7, "vllm failed (exit 1)", kernel) == cause


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("apply failed (exit 1)", "end"),
        (f"does not serve as rack.yaml declares it (held: {GARBAGE[1]}); its previous version serves again", "answer"),
        ("does not serve as rack.yaml declares it (held: no correct completion within 120 s: )", "hang"),
        (f"does not serve as rack.yaml declares it (held: {ENDED[1]})", "end"),
    ],
)
def test_a_unit_that_does_not_serve_has_not_failed_a_measurement(reason: str, cause: str) -> None:
    """Without a start whose states can be asked for, what was printed of the failure decides."""
    assert judgement.cause_of(status(), 0, reason, "") == cause
    assert judgement.cause_of(None, 0, reason, "") == cause


def test_what_was_before_the_trial_is_not_its_failure() -> None:
    assert judgement.cause_of(status(STUCK, generation=6), 7, "", "") == "bench"
    assert judgement.first_failure(status(STUCK, ("stopping", "asked to stop"), generation=6), 7) == ""
    assert judgement.first_failure(status(("stopping", "asked to stop"), ENDED), 7) == ENDED[1]


def test_a_stop_that_was_asked_for_is_not_a_failure() -> None:
    stop = ("stopping", "asked to stop; no request ran after 0.5 s")
    assert judgement.first_failure(status(stop), 7) == ""
    assert judgement.first_failure(status(stop, ENDED), 7) == ENDED[1]
    assert judgement.cause_of(status(stop), 7, "vllm failed (exit 1)", "") == "bench"


def test_a_trial_without_a_start_has_no_failure_of_an_earlier_one() -> None:
    assert judgement.first_failure(status(ENDED), 0) == ""


def test_a_fault_of_the_driver_is_what_the_agents_take_for_one() -> None:
    assert judgement.DRIVER_FAULT.pattern == serve_causes.DRIVER_FAULT


def begun(*values: Any) -> TuneBegun:
    tries = tuple(TriedValue(key="args.a", value=value) for value in values)
    fields = {"rack": "served", "file": "rack.yaml", "revision": "", "unit": "qwen", "image": "i", "nodes": ("n0",)}
    return TuneBegun(schema="sparkrack.serve-tune/1", tries=tries, **fields)


@pytest.fixture
def ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sparkrack/served/tune/qwen"


def test_a_ledger_tells_what_is_not_judged_yet_also_with_a_torn_line(ledgers: Path) -> None:
    ledger = new_ledger(begun(1, 2, True))
    ledger.write(TrialStarted())
    ledger.write(TrialJudged(verdict="baseline", tokens_s=(1.0, 1.0, 1.0)))
    ledger.write(TrialStarted(key="args.a", value=1))
    ledger.write(TrialJudged(key="args.a", value=1, verdict="not better"))
    ledger.write(TrialStarted(key="args.a", value=2))
    ledger.write(TrialJudged(key="args.a", value=2, verdict="interrupted"))
    ledger.write(TrialStarted(key="args.a", value=2))
    ledger.write(TrialJudged(key="args.a", value=2, verdict="unknown"))
    ledger.write(TrialStarted(key="args.a", value=2))
    ledger.write(TrialRun(key="args.a", value=2, tokens_s=3.5))
    (path,) = ledgers.iterdir()
    with path.open("a") as file:
        file.write('{"event": "judg')
    found = last_ledger("served", "qwen")
    assert found
    assert found.lines == ledger.lines
    assert found.open_tries == (Try("args.a", 2), Try("args.a", True))
    assert found.unjudged_runs(Try("args.a", 2)) == (3.5,)
    assert found.unjudged_runs(Try("args.a", 1)) is None
    assert found.ended is None
    for line in (TrialStarted(), TrialRun(tokens_s=9.0), TrialJudged(verdict="baseline")):
        found.write(line)
    assert found.unjudged_runs(Try("args.a", 2)) == (3.5,), "a run that is resumed has measured the unit as declared"
    found.write(TrialJudged(key="args.a", value=2, verdict="kept", tokens_s=(3.5, 3.5, 3.5)))
    found.write(TuneEnded(serves=True))
    again = last_ledger("served", "qwen")
    assert again
    assert again.lines == found.lines
    assert again.open_tries == (Try("args.a", True),)
    assert not again.is_done, "a value is open"
    assert again.unjudged_runs(Try("args.a", 2)) is None
    assert again.ended


def test_a_ledger_that_is_not_kept_goes_with_its_log(ledgers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_ledger, "MAX_LEDGERS", 1)
    for year in (2025, 2026):
        path = new_ledger(begun(1).model_copy(update={"at": datetime(year, 1, 1, tzinfo=UTC)})).path
        path.with_suffix(".log").touch()
    assert sorted(ledgers.iterdir()) == [path.with_suffix(".log"), path]


def test_what_is_not_a_ledger_is_named(ledgers: Path) -> None:
    assert last_ledger("served", "qwen") is None
    ledgers.mkdir(parents=True)
    path = ledgers / "20261127T000000.000Z.ndjson"
    for content in ('{"event": "other"}\n', "", "[]\n", '{"event": "ended", "serves": true}\n'):
        path.write_text(content)
        with pytest.raises(CommandError, match=f"{path}: is not a ledger: "):
            last_ledger("served", "qwen")
