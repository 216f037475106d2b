"""docs/cli.md shows the help that the command prints, and names every verb."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import VERBS, sparkrack
from tests.generated import REPOSITORY, check

DOCUMENT = "docs/cli.md"
SHOWN = ("plan", "apply", "drift", "verify", "topology", "status", "check", "unlock")
"""The verbs whose help is shown; the others have runbooks."""


def printed(*words: str) -> str:
    done = CliRunner().invoke(sparkrack, [*words, "--help"], prog_name="sparkrack", env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_help_of_the_command() -> None:
    check(DOCUMENT, "sparkrack", printed())


@pytest.mark.parametrize("verb", SHOWN)
def test_the_help_of_a_verb(verb: str) -> None:
    check(DOCUMENT, verb, printed(verb))


def test_every_verb_is_named() -> None:
    text = (REPOSITORY / DOCUMENT).read_text()
    table = text.partition("## Verbs")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `sparkrack (\w+)", table, re.MULTILINE)) == set(VERBS)
