"""What a shell completes to: verbs, options, roles, and the machines of the rack, with verbs that load when used."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from sparkrack.cli.main import VERBS, sparkrack
from tests.unit.cli.runs import command
from tests.unit.cli.test_help import ALL
from tests.unit.model.racks import CASES, VALID

DIRECT = str(VALID / "direct.yaml")
CHOOSE = ("--limit", "--exclude")
NODES, SWITCHES = ["spark1", "spark2"], ["crs812"]
MACHINES = [*NODES, *SWITCHES]
NODE_PATTERNS = [*NODES, "nodes"]
PATTERNS = [*MACHINES, "nodes", "switches"]
VERBS_OF_HOSTS = ("plan", "apply", "drift", "verify", "status", "watch", "accept", "remove")
TAKING: dict[tuple[str, ...], list[str]] = {
    **{(verb, option): PATTERNS for verb in VERBS_OF_HOSTS for option in CHOOSE},
    ("topology", "--limit"): PATTERNS,
    ("reboot", "--limit"): NODE_PATTERNS,
    ("upgrade", "driver"): NODES,
    ("switch", "restore"): SWITCHES,
    ("switch", "restore", "crs812"): [],
    ("bootstrap", "switch"): SWITCHES,
    ("bootstrap", "nodes"): NODE_PATTERNS,
    ("switch", "password"): SWITCHES,
    ("rebuild",): NODE_PATTERNS,
    ("up", "--exclude"): PATTERNS,
    ("rebuild", "--exclude"): PATTERNS,
    ("rebuild", "--containers"): NODE_PATTERNS,
    ("rebuild", "--switch"): SWITCHES,
    ("seed",): NODE_PATTERNS,
}
"""What takes a machine of the rack, and which there are."""


def completed(*words: str) -> list[str]:
    """What the last word may become."""
    *before, last = words
    shell = BashComplete(sparkrack, {}, "sparkrack", "_SPARKRACK_COMPLETE")
    return [item.value for item in shell.get_completions(before, last)]


@pytest.fixture(autouse=True)
def rack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACK", str(VALID / "switch.yaml"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pl"], ["plan"]),
        ([""], list(VERBS)),
        (["plan", "--ex"], ["--exclude"]),
        (["plan", "--only", "f"], ["fabric"]),
        (["plan", "--limit", "spark"], ["spark1", "spark2"]),
        (["plan", "--limit", "spark1", "--exclude", ""], ["spark1", "spark2", "crs812", "nodes", "switches"]),
        (["plan", "--limit", "no"], ["nodes"]),
        (["plan", "--rack", DIRECT, "--limit", "s"], []),
        (["plan", "--rack", DIRECT, "--limit", ""], ["left", "right", "nodes"]),
        (["plan", "--rack", "no/such.yaml", "--limit", ""], []),
        (["plan", "--rack", str(CASES / "typo-in-key.yaml"), "--limit", ""], []),
        (["lab", "sta"], ["status"]),
    ],
)
def test_completion(words: list[str], found: list[str]) -> None:
    assert completed(*words) == found


@pytest.mark.parametrize("words", TAKING, ids=" ".join)
def test_machines(words: tuple[str, ...]) -> None:
    assert completed(*words, "") == TAKING[words]
    assert completed(*words, "no-such") == []


def test_no_verb_is_forgotten() -> None:
    taking = {(*words, option) for words in ALL for option in CHOOSE if option in completed(*words, "--")}
    assert taking == {words for words in TAKING if words[-1] in CHOOSE}


@pytest.mark.parametrize(("verb", "found"), [("reset", MACHINES), ("reboot", NODES), ("ssh", NODES)])
def test_the_lab_knows_its_own(verb: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKRACK_LAB", str(tmp_path))
    monkeypatch.setenv("RACK", DIRECT)
    assert completed("lab", verb, "") == [], "no lab"
    (tmp_path / "rack.yaml").write_text((VALID / "switch.yaml").read_text())
    assert completed("lab", verb, "") == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_gives_the_shell_its_script(shell: str, tmp_path: Path) -> None:
    ended = command("sparkrack", cwd=tmp_path, _SPARKRACK_COMPLETE=f"{shell}_source")
    assert ended.code == 0, ended.text
    assert f"{shell}_complete" in ended.stdout


def test_the_script_gets_its_answer(tmp_path: Path) -> None:
    ended = command(
        "sparkrack",
        cwd=tmp_path,
        _SPARKRACK_COMPLETE="bash_complete",
        COMP_WORDS="sparkrack plan --limit sp",
        COMP_CWORD="3",
        RACK=str(VALID / "switch.yaml"),
    )
    assert (ended.code, ended.stdout) == (0, "plain,spark1\nplain,spark2\n"), ended.text
