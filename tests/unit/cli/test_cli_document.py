"""docs/cli.md shows the help that the command prints, and names every verb."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sparkrack.cli.main import VERBS
from tests.generated import REPOSITORY, check

DOCUMENT = "docs/cli.md"
SHOWN = ("plan", "apply", "drift", "verify", "topology", "status", "runs", "check", "unlock", "up", "rebuild", "seed")
"""The verbs whose help is shown; the others have runbooks."""


WIDE = """
from click import formatting
from sparkrack.cli.main import sparkrack
formatting.FORCED_WIDTH = 80
sparkrack(prog_name="sparkrack")
"""


def printed(*words: str) -> str:
    # In a process of its own: a command keeps the words for help that it was first asked with, perhaps by another test.
    done = subprocess.run(
        [sys.executable, "-c", WIDE, *words, "--help"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
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
