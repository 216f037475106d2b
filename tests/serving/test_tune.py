"""`serve tune` with real coordinators, agents and scripts of the nodes: what is kept, and what is after kill -9."""

from __future__ import annotations

import re
import signal

import pytest

from tests.serving.serving_rack import ServingRack
from tests.serving.tune_rack import BETTER, DECLARED, KEY, WORSE, TuneRack, finished

REST = pytest.mark.soak(sampled=False)
"""In CPU time, each of these costs as much as a virtual rack that starts."""


@pytest.fixture
def tuned(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> TuneRack:
    """A unit that serves with what rack.yaml declares."""
    # The probe needs no second of what the engine takes for a request, and a hang is over soon.
    rack.up(times={"probe_interval": 2.0, "probe_limit": 4.0, "drain": 3.0})
    made = TuneRack(rack, monkeypatch)
    rack.start()
    return made


@REST
def test_of_six_values_the_better_one_is_kept_and_the_ledger_tells_each(tuned: TuneRack) -> None:
    before = tuned.file.read_text()
    code, output = finished(tuned.tune("--try", f"{KEY}=garbage,{WORSE},hangs,{BETTER},ends,eats"))
    assert code == 0, output
    assert tuned.verdicts() == {
        "": ("baseline", ""),
        "garbage": ("failed", "answer"),
        WORSE: ("not better", ""),
        "hangs": ("failed", "hang"),
        BETTER: ("kept", ""),
        "ends": ("failed", "end"),
        "eats": ("failed", "memory"),
    }, output
    tuned.whole_with(BETTER)
    assert tuned.file.read_text() == before.replace(f"STANDIN_TUNED: '{DECLARED}'", f"STANDIN_TUNED: '{BETTER}'")
    assert not tuned.file.with_suffix(".tune").exists()
    ledger = tuned.ledger()
    by_value = {str(one.value): one for one in ledger.judged}
    assert len(by_value[BETTER].tokens_s) == len(by_value[WORSE].tokens_s) == 3
    assert by_value["ends"].before == by_value[BETTER].tokens_s, "what was kept is what later values are compared with"
    assert ledger.ended
    assert ledger.ended.serves


def test_the_screen_has_a_line_a_step_and_the_log_has_the_rest(tuned: TuneRack) -> None:
    before = tuned.file.read_text()
    code, output = finished(tuned.tune("--try", f"{KEY}=garbage,{BETTER},unapplied"))
    assert code == 0, output
    assert tuned.verdicts() == {
        "": ("baseline", ""),
        "garbage": ("failed", "answer"),
        BETTER: ("kept", ""),
        "unapplied": ("failed", "end"),
    }, output
    tuned.whole_with(BETTER)
    assert tuned.file.read_text() == before.replace(f"STANDIN_TUNED: '{DECLARED}'", f"STANDIN_TUNED: '{BETTER}'")
    shown = output[output.index("as declared\n") : output.index("value ")].splitlines()
    number = r"[0-9.]+"
    start = [rf"  files applied in {number} s", rf"  gates passed in {number} s"]
    ready = rf"  ready after {number} s: a completion gave the known answer, a chat completion gave a clean text"
    measured = [ready, rf"  measured: {number} {number} {number} tokens/s"]
    wanted = [
        *("as declared", *start, *measured, rf"  baseline: {number} tokens/s"),
        *(f"{KEY}=garbage", *start, r"  failed: answer: held: the answer is '.*"),
        *("as declared, again", *start, ready),
        *(f"{KEY}={BETTER}", *start, *measured, rf"  kept: \+{number} %, where the runs before differ by {number} %"),
        *(f"{KEY}=unapplied", "  the plan: 2 hosts, 4 changes", "  spark2: no space left on device"),
        r"  failed: end: apply failed \(exit 1\): .*; spark2: no space left on device; unit toy is down",
        *("as declared, again", *start, ready),
    ]
    assert len(shown) == len(wanted), output
    for line, pattern in zip(shown, wanted, strict=True):
        assert re.fullmatch(pattern, line), output
    ledger = tuned.ledger()
    log = ledger.path.with_suffix(".log").read_text()
    assert f"log: {ledger.path.with_suffix('.log')}" in output
    assert log.splitlines().count("the plan: 2 hosts, 4 changes") == 6
    assert "toy: stopping: the answer is '" in log
    assert "toy: draining: asked to stop" in log
    assert "it computes for others" not in output, "the measurement before was this run's own"


@REST
def test_a_value_is_tried_again_where_a_node_gave_no_answer_before_the_start(tuned: TuneRack) -> None:
    code, output = finished(tuned.tune("--try", f"{KEY}=silent"))
    assert code == 1, output
    assert tuned.verdicts() == {"": ("baseline", ""), "silent": ("unknown", "")}, output
    reason = "apply failed (exit 1): the plan: 2 hosts, 4 changes; spark2: no answer; unit toy is down; spark2: "
    assert reason in output, output
    assert f"{KEY}=silent: is tried again by --resume" in output, output
    tuned.whole_with(DECLARED)
    code, output = finished(tuned.tune("--resume"))
    assert code == 0, output
    assert tuned.verdicts()["silent"] == ("kept", ""), "the engine takes no time for a value that is not a number"
    tuned.whole_with("silent")


def test_a_fault_of_a_gpu_ends_all_trials(tuned: TuneRack) -> None:
    script = tuned.rack.folder / "tool.py"
    xid = "NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus."
    fault = f"""import os
node = os.environ["NODE"]
if "STANDIN_TUNED={BETTER}\\n" in open(node + "/etc/toy.env").read():
    open(node + "/kernel.log", "a").write({xid!r})
"""
    script.write_text(fault + script.read_text())
    code, output = finished(tuned.tune("--try", f"{KEY}={BETTER},{WORSE}"))
    assert code == 1, output
    assert tuned.verdicts() == {"": ("baseline", ""), BETTER: ("failed", "driver")}, output
    assert [one.value for one in tuned.ledger().open_tries] == [WORSE]
    tuned.whole_with(DECLARED)


def test_a_measurement_of_the_declared_version_that_fails_is_not_an_end_of_the_engine(tuned: TuneRack) -> None:
    (tuned.rack.folder / "tool.py").write_text("raise SystemExit('no tokenizer')")
    code, output = finished(tuned.tune("--try", f"{KEY}={BETTER}"))
    assert code == 1, output
    assert tuned.verdicts() == {"": ("failed", "bench")}, output
    (judged,) = tuned.ledger().judged
    assert "no tokenizer" in judged.reason
    assert tuned.ledger().open_tries
    tuned.whole_with(DECLARED)


def test_what_would_be_tried_is_shown_and_nothing_is_changed(tuned: TuneRack) -> None:
    before = {path: path.read_bytes() for path in (tuned.file, *(node.unit_file for node in tuned.rack.nodes))}
    generation = tuned.rack.record()["generation"]
    done = tuned.dry("--try", f"{KEY}={BETTER},{DECLARED}", "--try", "args.no-such-option=1")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tune unit toy, which does not serve its clients meanwhile: ")
    assert lines[1:3] == [f"  {KEY}={BETTER}", f"  {KEY}={DECLARED}: not tried: it is what rack.yaml declares"]
    assert lines[3].startswith("  args.no-such-option=1: not tried: ")
    assert "no-such-option" in lines[3].partition("not tried: ")[2]
    assert {path: path.read_bytes() for path in before} == before
    assert tuned.rack.record()["generation"] == generation
    assert not (tuned.rack.folder / "state/sparkrack/served/tune").exists()


KILLS = {
    "after ledger started, 1": DECLARED,
    "after down, 1": DECLARED,
    "after apply, 1": DECLARED,
    "after ledger judged, 1": DECLARED,
    "after down, 2": DECLARED,
    "before begin on spark2, 2": DECLARED,
    "after apply, 2": DECLARED,
    "after up, 2": DECLARED,
    "after ledger run, 4": DECLARED,
    "before rack.yaml, 1": DECLARED,
    "after rack.yaml, 1": BETTER,
    "after keep on spark1, 4": BETTER,
    "before ledger judged, 2": BETTER,
    "after ledger judged, 2": BETTER,
    "after down, 3": BETTER,
    "before ledger ended, 1": BETTER,
}
"""What rack.yaml has after a kill -9 of `serve tune` at a step; the second `up` is that of the better value."""
ALWAYS = "after apply, 2"
"""The others are in `make soak`."""


@pytest.mark.parametrize("at", [one if one == ALWAYS else pytest.param(one, marks=REST) for one in KILLS])
def test_a_killed_run_leaves_what_was_declared_or_kept(tuned: TuneRack, at: str) -> None:
    words = ("--try", f"{KEY}={BETTER},garbage")
    code, output = finished(tuned.tune(*words, at=at))
    assert code == -signal.SIGKILL, output
    assert tuned.declared() == KILLS[at]
    tuned.unlock()
    code, output = finished(tuned.declare_again())
    assert code == 0, output
    tuned.whole_with(KILLS[at])
    code, output = finished(tuned.tune("--resume"))
    assert code == 0, output
    assert tuned.verdicts() == {"": ("baseline", ""), BETTER: ("kept", ""), "garbage": ("failed", "answer")}, output
    tuned.whole_with(BETTER)


@REST
def test_an_interrupted_run_brings_the_unit_back_and_is_resumed(tuned: TuneRack) -> None:
    """The first tier interrupts a run in the next test and resumes one in the test before."""
    process = tuned.tune("--try", f"{KEY}={WORSE}")
    runs = f'"event":"run","key":"{KEY}"'
    folder = tuned.rack.folder / "state/sparkrack/served/tune/toy"
    tuned.rack.wait(lambda: any(runs in path.read_text() for path in folder.glob("*")), "a value is measured")
    process.send_signal(signal.SIGINT)
    code, output = finished(process)
    assert code == 1, output
    assert tuned.verdicts() == {"": ("baseline", ""), WORSE: ("interrupted", "")}, output
    tuned.whole_with(DECLARED)
    code, output = finished(tuned.tune("--resume"))
    assert code == 0, output
    assert tuned.verdicts() == {"": ("baseline", ""), WORSE: ("not better", "")}, output
    tuned.whole_with(DECLARED)


def test_an_interruption_while_the_unit_stops_after_a_trial_brings_it_back(tuned: TuneRack) -> None:
    code, output = finished(tuned.tune("--try", f"{KEY}={WORSE}", at="interrupted after down, 3"))
    assert code == 1, output
    assert tuned.verdicts() == {"": ("baseline", ""), WORSE: ("not better", "")}, output
    tuned.whole_with(DECLARED)
    ended = tuned.ledger().ended
    assert ended is not None, output
    assert (ended.serves, ended.reason) == (True, "interrupted")


@REST
def test_a_killed_run_is_resumed_at_once(tuned: TuneRack) -> None:
    code, output = finished(tuned.tune("--try", f"{KEY}={BETTER}", at="after up, 2"))
    assert code == -signal.SIGKILL, output
    tuned.unlock()
    code, output = finished(tuned.tune("--resume"))
    assert code == 0, output
    assert tuned.verdicts() == {"": ("baseline", ""), BETTER: ("kept", "")}, output
    tuned.whole_with(BETTER)
