"""Which rack file a command uses that names none: the one of its folder, or of a clone; never a guess between two."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from core.model import load
from sparkrack.cli.main import sparkrack
from sparkrack.discovery.write_rack_file import SECRETS, ignore_secrets
from sparkrack.terminal.progress import ProgressDisplay
from tests.generated import REPOSITORY
from tests.unit.cli.runs import Ended, command
from tests.unit.cli.test_completion import completed
from tests.unit.model.racks import DIRECT, SWITCH

PYINFRA = ("pyinfra", "inventory.py", "debug-inventory")
DIFFER = "rack.yaml: differs from group_data/rack.yaml; name one of them: RACK=rack.yaml or RACK=group_data/rack.yaml"
NONE = (
    "rack.yaml: cannot be read: No such file or directory; write one with `sparkrack init`, or name another with RACK"
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What pyinfra reads of a clone; the packages come from this repository."""
    folder = tmp_path / "clone"
    (folder / "group_data").mkdir(parents=True)
    for name in ("config.py", "deploy.py", "inventory.py", "group_data/nodes.py"):
        shutil.copyfile(REPOSITORY / name, folder / name)
    return folder


def run(clone: Path, *words: str, **environment: str) -> Ended:
    return command(*words, cwd=clone, python_path=REPOSITORY, **environment)


def test_pyinfra_reads_the_file_of_a_clone(clone: Path) -> None:
    (clone / "group_data/rack.yaml").write_text(SWITCH)
    assert "10.77.0.11" in (ended := run(clone, *PYINFRA)).text, ended.text
    ended = run(clone, "sparkrack", "check")
    assert (ended.code, ended.stdout.partition(":")[0]) == (0, "group_data/rack.yaml"), ended.text


def test_a_file_of_the_folder_is_read_by_both(clone: Path) -> None:
    (clone / "rack.yaml").write_text(SWITCH)
    assert "10.77.0.11" in (ended := run(clone, *PYINFRA)).text, ended.text
    ended = run(clone, "sparkrack", "check")
    assert (ended.code, ended.stdout.partition(":")[0]) == (0, "rack.yaml"), ended.text


@pytest.mark.parametrize("words", [PYINFRA, ("sparkrack", "check"), ("sparkrack", "plan")], ids=" ".join)
def test_without_a_file_one_line_says_how_to_make_one(clone: Path, words: tuple[str, ...]) -> None:
    ended = run(clone, *words)
    assert ended.code == 1, ended.text
    assert [line for line in ended.text.splitlines() if NONE in line], ended.text
    assert "Traceback" not in ended.text


@pytest.mark.parametrize("words", [PYINFRA, ("sparkrack", "check"), ("sparkrack", "plan")], ids=" ".join)
def test_two_files_that_differ_end_every_command(clone: Path, words: tuple[str, ...]) -> None:
    (clone / "rack.yaml").write_text(SWITCH)
    (clone / "group_data/rack.yaml").write_text(DIRECT)
    ended = run(clone, *words)
    assert ended.code == 1, ended.text
    assert [line for line in ended.text.splitlines() if DIFFER in line], ended.text
    assert "Traceback" not in ended.text
    named = run(clone, "sparkrack", "check", RACK="group_data/rack.yaml")
    assert named.code == 0, named.text
    named = run(clone, "sparkrack", "check", "--rack", "rack.yaml")
    assert named.code == 0, named.text


def test_a_command_of_a_group_takes_the_one_it_names(clone: Path) -> None:
    (clone / "rack.yaml").write_text(SWITCH)
    (clone / "group_data/rack.yaml").write_text(DIRECT)
    ended = run(clone, "sparkrack", "drift", "timer", "--rack", "rack.yaml", "--user", "nobody")
    assert ended.code == 0, ended.text
    for words in (("drift",), ("drift", "timer"), ("bootstrap",)):
        ended = run(clone, "sparkrack", *words)
        assert (ended.code, ended.stderr) == (1, f"{DIFFER}\n"), ended.text


def test_completion_of_two_files_that_differ_is_empty(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clone)
    monkeypatch.delenv("RACK", raising=False)
    (clone / "rack.yaml").write_text(SWITCH)
    assert completed("plan", "--limit", "") == ["spark1", "spark2", "crs812", "nodes", "switches"]
    (clone / "group_data/rack.yaml").write_text(DIRECT)
    assert completed("plan", "--limit", "") == []


INIT = (
    "init",
    "--node",
    "a=127.77.0.1",
    "--node",
    "b=127.77.0.2",
    "--vendor",
    "asus",
    "--switch",
    "-",
    "--user",
    "ops",
)
RING = ("--cable", "a/1=b/1", "--cable", "b/1=a/1", "--ssh-port", "9")


def test_init_writes_into_the_folder_and_keeps_secrets_out_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RACK", raising=False)
    ended = CliRunner().invoke(sparkrack, [*INIT, *RING, "--key", "operator"])
    assert ended.exit_code == 0, ended.output
    assert "rack.yaml is ready" in ended.output
    assert list(load(tmp_path / "rack.yaml").nodes) == ["a", "b"]
    lines = (tmp_path / ".gitignore").read_text().splitlines()
    assert lines[1:] == [*SECRETS, "/operator"]
    (tmp_path / "group_data").mkdir()
    (tmp_path / "rack.yaml").rename(tmp_path / "group_data/rack.yaml")
    ended = CliRunner().invoke(sparkrack, [*INIT, *RING])
    assert ended.exit_code == 1
    assert not (tmp_path / "rack.yaml").exists()


def test_a_gitignore_that_exists_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ".gitignore"
    file.write_text("*.password\n")
    data = {"switches": {"crs812": {"password": {"file": "secrets/crs812"}}}, "access": {"key": "~/.ssh/id_ed25519"}}
    ignore_secrets(tmp_path, data, ProgressDisplay(silent=True))
    assert file.read_text() == "*.password\n"
    reported = capsys.readouterr().err
    assert reported.endswith(f"so that git keeps no secret: {' '.join([*SECRETS[1:], '/secrets/crs812'])}\n")
    file.write_text("\n".join([*SECRETS, "/secrets/crs812"]))
    ignore_secrets(tmp_path, data, ProgressDisplay(silent=True))
    assert capsys.readouterr().err == ""


def test_the_gitignore_of_a_repository_counts_below_it(tmp_path: Path) -> None:
    """In a clone nothing is written: its own .gitignore has the lines."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "group_data").mkdir()
    shutil.copyfile(REPOSITORY / ".gitignore", tmp_path / ".gitignore")
    ignore_secrets(tmp_path / "group_data", {"rack": "a"}, ProgressDisplay(silent=True))
    assert not (tmp_path / "group_data/.gitignore").exists()
