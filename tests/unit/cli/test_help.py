"""Every command says what it is for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparkrack.cli.main import VERBS, sparkrack
from tests.generated import REPOSITORY


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below, name
            yield from commands(below, *words, name)


ALL = list(commands(sparkrack))


def found(words: tuple[str, ...]) -> click.Command:
    command: click.Command = sparkrack
    for word in words:
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), word)
        assert below
        command = below
    return command


def test_they_are_all_there() -> None:
    assert {("check",), ("verify",), ("lab", "up"), ("lab", "down"), ("lab", "status"), ("lab", "reset")} <= set(ALL)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "sparkrack")
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(words: tuple[str, ...], option: str) -> None:
    ended = CliRunner().invoke(sparkrack, [*words, option])
    assert ended.exit_code == 0, ended.output
    usage, _, text = ended.output.partition("\n\n")
    assert usage.startswith("Usage: ")
    assert len(text.partition("Options:")[0].split()) > 5, "says nothing"


@pytest.mark.parametrize("words", [("no-such-command",), ("lab", "no-such"), ("verify", "--no-such")])
def test_what_is_not_there(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(sparkrack, list(words))
    assert ended.exit_code == 1
    assert "Error: No such" in ended.output


def test_each_verb_has_its_whole_line_within_80_columns() -> None:
    lines = CliRunner().invoke(sparkrack, ["--help"], terminal_width=80).output.splitlines()
    for name, text in VERBS.items():
        (line,) = [line for line in lines if line.split()[:1] == [name] and line.startswith(f"  {name} ")]
        assert line.split(maxsplit=1) == [name, text]
        assert len(line) <= 80


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["no-such-command"]])
def test_help_loads_no_verb_and_no_model(words: list[str]) -> None:
    """All modules together take a second, and `--help` is what a newcomer types first."""
    program = (
        "import sys; from contextlib import suppress; from sparkrack.cli.main import sparkrack\n"
        f"with suppress(SystemExit): sparkrack({words!r})\n"
        "print([name for name in sys.modules if name.startswith(('core.model', 'pydantic', 'pyinfra'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [words for words in ALL if isinstance(found(words), click.Group)], ids=" ".join)
@pytest.mark.parametrize("width", [60, 80])
def test_no_line_of_a_command_is_cut(words: tuple[str, ...], width: int) -> None:
    text = CliRunner().invoke(sparkrack, [*words, "--help"], terminal_width=width).output
    lines = text.rpartition("Commands:\n" if words else "Every day:\n")[2].splitlines()
    assert len(lines) > 1 or words == ("drift",)
    assert [line for line in lines if line.endswith("...")] == []
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("words", "new"),
    [(["driver", "release", "spark1"], "upgrade driver"), (["switch", "upgrade", "--packages", "x"], "upgrade switch")],
)
def test_a_verb_that_has_moved_is_named_with_its_new_words(words: list[str], new: str) -> None:
    ended = CliRunner().invoke(sparkrack, words)
    assert ended.exit_code == 1
    assert ended.stderr.endswith(f" is now 'sparkrack {new}'.\n")
    assert CliRunner().invoke(sparkrack, [*new.split(), "--help"]).exit_code == 0
