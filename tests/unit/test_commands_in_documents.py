"""Whoever follows a runbook types commands that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.commands import parsed
from tests.generated import REPOSITORY

DOCUMENTS = [
    *sorted(REPOSITORY.glob("docs/runbooks/*.md")),
    REPOSITORY / "docs/autopsy.md",
    REPOSITORY / "docs/rebuild.md",
    REPOSITORY / "docs/roles/blackbox.md",
    REPOSITORY / "docs/seed.md",
    *(REPOSITORY / f"docs/{name}.md" for name in ("take-off", "add-a-node", "remove-a-node", "replace-a-node")),
]
SYMPTOMS = ("node-lost", "switch-lost", "switch-compromised", "cable-moved", "operator")
"""The pages that were thought through command by command."""


def commands(document: Path) -> Iterator[str]:
    """Each command of ours that a document names in code, as it stands there; several of a line one by one."""
    text = re.sub(r"\\\n\s*", "", document.read_text())  # a command of several lines
    blocks = re.findall(r"^(?: {4,}|\t)(.*)$", text, re.MULTILINE)
    prose = re.sub(r"^(?: {4,}|\t).*$", "", text, flags=re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    # What a run prints is quoted, and may stand for a whole family of commands.
    for line in (*blocks, *spans):
        for part in re.split(r"&&|;|\||\$\(", line):
            match = re.search(r"(?:^|[\s(])sparkrack ((?:[a-z]|-).*)$", part.split(" #")[0].strip())
            if match and not re.match(r"^(?:pyinfra|python)", part.strip()):
                yield match[1].rstrip(")").strip()


def words(command: str) -> list[str]:
    """Without the dots that stand for more."""
    return [word for word in shlex.split(command) if word not in ("...", "…")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_command_that_is_named_exists(document: Path) -> None:
    for command in commands(document):
        try:
            parsed(words(command))
        except click.UsageError as fault:
            raise AssertionError(f"{document.name}: sparkrack {command}: {fault.format_message()}") from None


@pytest.mark.parametrize("name", SYMPTOMS)
def test_each_page_of_symptoms_says_what_to_type_and_when_it_is_over(name: str) -> None:
    page = REPOSITORY / f"docs/runbooks/{name}.md"
    assert len(list(commands(page))) >= 4
    assert "**It is over**" in page.read_text()
    assert f"({name}.md)" in (REPOSITORY / "docs/runbooks/README.md").read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        "rebuilt --all",
        "rebuild --al",
        "rebuild spark2 --replace-hostkey",
        "apply --only acces",
        "bootstrap no one",
        "switch password --new-file",
        "switch restor --list",
        "check and more",
    ],
)
def test_a_command_that_does_not_exist_is_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(shlex.split(wrong))


def test_a_wrong_command_in_a_document_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Say `sparkrack check`, or\n\n    RACK=x sparkrack aply --only x && sparkrack plan  # not this\n")
    assert list(commands(page)) == ["aply --only x", "plan", "check"]
