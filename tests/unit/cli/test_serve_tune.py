"""`sparkrack serve tune`: what it shows before, and refuses, with nodes that are shells here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.serving import bench_record
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
