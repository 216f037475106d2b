"""Every command says what it is for."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below, name
            yield from commands(below, *words, name)


ALL = list(commands(sparkrack))


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
