"""docs/reference/exit-codes.md has a row for each command; wrong usage of each ends with 1, never with 2."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from tests.generated import REPOSITORY
from tests.unit.cli.test_help import ALL
from tests.unit.model.racks import VALID

DOCUMENT = "docs/reference/exit-codes.md"
ABSENT = "–"
"""A code that a command never ends with."""
UNKNOWN_NAMES: tuple[tuple[str, ...], ...] = (
    *(
        (verb, option, "no-such")
        for verb in ("plan", "drift", "verify", "status", "watch")
        for option in ("--limit", "--exclude")
    ),
    *((verb, "--only", "no-such") for verb in ("plan", "apply", "drift", "verify")),
    ("apply", "-y", "--limit", "no-such"),
    ("remove", "-y", "--limit", "no-such"),
    ("topology", "--limit", "no-such"),
    ("rebuild", "no-such"),
    ("support", "no-such"),
    ("autopsy", "no-such"),
    ("drill", "no-such", "--level", "mark"),
    ("accept", "--limit", "no-such"),
    ("accept", "--claim", "no-such"),
    ("seed", "no-such", "--out", "no-such-folder"),
    ("bootstrap", "nodes", "no-such"),
    ("bootstrap", "switch", "no-such"),
    ("upgrade", "driver", "no-such"),
    ("reboot", "-y", "--limit", "no-such"),
    ("switch", "restore", "no-such", "no-such"),
    ("switch", "password", "no-such", "--new-file", "no-such-file"),
    ("upgrade", "switch", "no-such", "--packages", "no-such-folder"),
    ("serve", "check", "no-such"),
    ("serve", "check", "--model", "no-such"),
    ("serve", "render", "no-such"),
    *(("serve", verb, "no-such") for verb in ("start", "stop", "restart", "recreate", "status", "logs")),
    ("serve", "export", "no-such", "--format", "lws"),
    ("serve", "bench", "no-such"),
    ("serve", "calibrate", "no-such"),
)
"""Calls with a name that is not in the rack, or is not a role."""


def rows() -> dict[tuple[str, ...], tuple[str, ...]]:
    """What the page says of each command: its codes 0, 2 and 1."""
    found = re.findall(r"^\| `sparkrack ([\w -]+)` \| (.*) \|$", (REPOSITORY / DOCUMENT).read_text(), re.MULTILINE)
    return {tuple(words.split()): tuple(cell.strip() for cell in cells.split("|")) for words, cells in found}


def command(words: tuple[str, ...]) -> click.Command:
    found: click.Command = sparkrack
    for word in words:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), word)
        assert below
        found = below
    return found


def runs(words: tuple[str, ...]) -> bool:
    """Whether a command does something by itself: a group of commands does not."""
    found = command(words)
    return not isinstance(found, click.Group) or found.invoke_without_command


def test_each_command_has_a_row() -> None:
    assert set(rows()) == {words for words in ALL if runs(words)}


@pytest.mark.parametrize("words", [words for words in ALL if runs(words)], ids=" ".join)
def test_a_row_says_what_each_code_means(words: tuple[str, ...]) -> None:
    zero, two, one = rows()[words]
    assert zero not in ("", ABSENT)
    assert one not in ("", ABSENT)
    assert two


@pytest.fixture
def _set_rack_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACK", str(VALID / "switch.yaml"))


@pytest.mark.usefixtures("_set_rack_variable")
@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "sparkrack")
def test_an_unknown_option_ends_with_1(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(sparkrack, [*words, "--no-such-option"])
    assert ended.exit_code == 1, ended.output
    assert "Error: No such option" in ended.output


@pytest.mark.usefixtures("_set_rack_variable")
@pytest.mark.parametrize("words", UNKNOWN_NAMES, ids=" ".join)
def test_an_unknown_name_ends_with_1(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(sparkrack, words)
    assert ended.exit_code == 1, ended.output
    assert "no-such" in ended.output
    assert isinstance(ended.exception, SystemExit), ended.exception
