"""`sparkrack serve tune`: what it shows before, and refuses, with nodes that are shells here."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from sparkrack.cli.main import sparkrack
from sparkrack.cli.serve_tune import print_ledger
from sparkrack.serving import bench_record
from sparkrack.serving.tune_ledger import TrialJudged, TriedValue, TuneBegun, TuneLedger
from tests.unit.cli.serve_rack import ServeRack, answer
from tests.unit.cli.test_serve_bench import Head
from tests.unit.model.serving_racks import unit


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRack:
    return ServeRack(tmp_path, monkeypatch)


def test_dry_says_what_is_tried_and_how_long_that_is_unknown(rack: ServeRack) -> None:
    before = rack.file.read_bytes()
    rack.answers(answer("ready"))
    done = rack.run("tune", "qwen", "--dry", "--try", "args.max-num-batched-tokens=4096", "--try", "memory=0.99,0.8")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "tune unit qwen, which does not serve its clients meanwhile: unknown time: no figure of a good start of the "
        "unit is recorded"
    )
    assert lines[1] == "  args.max-num-batched-tokens=4096"
    assert lines[2].startswith("  memory=0.99: not tried: ")
    assert "rack.yaml:" in lines[2]
    assert lines[3] == "  memory=0.8: not tried: it is what rack.yaml declares"
    assert rack.asked() == []
    assert rack.file.read_bytes() == before
    assert not rack.lock.exists()


def test_the_time_is_that_of_the_latest_start_and_measurement(
    rack: ServeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "head").mkdir()
    with monkeypatch.context() as patch:
        head = Head(tmp_path / "head", patch, unit(), 2)
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert head.bench("--quick", "--save").exit_code == 0
    assert bench_record.read_baseline("served", "qwen", "quick")
    rack.answers({**answer("ready"), "figures": {"gates_s": 10.0, "ready_s": 590.0}})
    done = rack.run("tune", "qwen", "--dry", "--try", "args.max-num-batched-tokens=4096,8192")
    assert done.exit_code == 0, done.output
    # 4 requests of 256 tokens at 16.98 tokens/s are 60 s.
    expected = (
        "39 min to 59 min: 3 starts of 600 s with 3 measurements of 60 s each, and up to 2 starts more to go back"
    )
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name values with --try, or continue with --resume"),
        (["--resume", "--try", "memory=0.7"], "name values with --try, or continue with --resume"),
        (["--resume"], "unit qwen has no ledger to resume"),
        (["--try", "memory=0.8"], "nothing can be tried"),
        (["--try", "state=down"], "is not a key that is tuned"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_is_changed(
    rack: ServeRack, words: list[str], why: str
) -> None:
    rack.answers(answer("ready"))
    done = rack.run("tune", "qwen", *words)
    assert done.exit_code == 1, done.output
    assert why in done.stderr
    assert rack.asked() == []


def test_a_unit_that_is_down_in_rack_yaml_has_no_speed(rack: ServeRack) -> None:
    rack.declare({"qwen": unit(state="down")})
    done = rack.run("tune", "qwen", "--try", "memory=0.7")
    assert done.exit_code == 1
    assert "unit qwen is down in rack.yaml" in done.stderr


def test_a_run_without_the_lock_touches_nothing_of_the_run_that_has_it(rack: ServeRack) -> None:
    rack.answers(answer("ready"))
    rack.lock.parent.mkdir()
    rack.lock.write_text("{}")
    trial = rack.file.with_suffix(".tune")
    trial.write_text("the rack file of a trial of the other run")
    done = rack.run("tune", "qwen", "--try", "memory=0.7", "-y")
    assert done.exit_code == 1, done.output
    assert "lock" in done.stderr
    assert trial.read_text() == "the rack file of a trial of the other run"
    assert not (rack.folder / "state/sparkrack/served/tune").exists(), "--resume would take this for the latest ledger"


def test_the_rack_file_of_a_trial_is_not_tuned(rack: ServeRack) -> None:
    trial = rack.file.with_suffix(".tune")
    trial.write_bytes(rack.file.read_bytes())
    rack.answers(answer("ready"))
    done = CliRunner().invoke(sparkrack, ["serve", "tune", "qwen", "--try", "memory=0.7", "-y", "--rack", str(trial)])
    assert done.exit_code == 1, done.output
    assert f"{trial}: is the rack file of a trial; name the file beside it" in done.stderr
    assert trial.read_bytes() == rack.file.read_bytes()


def test_the_end_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """The table has what is compared; a reason, which may be long, is a sentence below it."""
    key, before = "env.NCCL_MIN_NCHANNELS", (17.05, 16.98, 17.01)
    begun = TuneBegun(
        schema="sparkrack.serve-tune/1",
        rack="pair",
        file="rack.yaml",
        revision="",
        unit="qwen",
        image="x:1",
        nodes=("n0", "n1"),
        tries=tuple(TriedValue(key=key, value=value) for value in ("2", "4", "8")),
    )
    reason = "n0 (rank 0) ended without being asked to, exit code 137; n0: sparkrack-memory-guard: 2.9 GiB, ended every"
    lines = (
        begun,
        TrialJudged(verdict="baseline", tokens_s=before, start_s=412.3, memory_left=11.4),
        TrialJudged(key=key, value="2", verdict="kept", reason="+7.1 %", tokens_s=(18.2, 18.3, 18.2), start_s=401.0),
        TrialJudged(key=key, value="4", verdict="failed", cause="memory", reason=reason, memory_left=2.94),
    )
    written = StringIO()
    with redirect_stdout(written):
        console = Console(file=written, width=80, force_terminal=True, color_system=None, highlight=False)
        print_ledger(TuneLedger(tmp_path / "l", lines), console)
    shown = [line.rstrip() for line in written.getvalue().splitlines()]
    assert shown[:4] == [
        "value                     tokens/s        start  memory left  judged",
        "as declared               17.1 17.0 17.0  412 s     11.4 GiB  baseline",
        f"{key}=2  18.2 18.3 18.2  401 s            -  kept",
        f"{key}=4  -                   -      2.9 GiB  failed: memory",
    ]
    assert shown[4] == f"{key}=2: +7.1 %"
    assert shown[5].startswith(f"{key}=4: n0 (rank 0) ended without being asked to")
    assert f"{key}=8: not tried" in shown
    assert max(map(len, shown[:-2])) <= 80, "paths are whole"
