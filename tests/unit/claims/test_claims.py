"""The claims that rest on manuals and reports: their file, their page, and the code that names them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import pytest

from core.claims.claims import CLAIMS, Claim, known_claims, read_claims
from tests.commands import parsed
from tests.generated import REPOSITORY, check

DOCUMENT = "docs/unproven.md"
FOLDERS = ("core", "serving", "roles", "switch", "sparkrack", "lab", "tests")
REFERENCE = re.compile(r"\bclaim: ((?:[a-z0-9-]+\.)+[a-z0-9-]+(?:, (?:[a-z0-9-]+\.)+[a-z0-9-]+)*)")
FIRST = CLAIMS.read_text().partition("\n\n")[2].partition("\n\n")[0]
"""The first record of the file."""


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def named(folder: Path) -> Mapping[str, list[str]]:
    """The ids that Python files of the project below the folder name, with file:line of each."""
    found: dict[str, list[str]] = defaultdict(list)
    for part in FOLDERS:
        for path in sorted((folder / part).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for match in REFERENCE.finditer(line):
                    for name in match[1].split(", "):
                        found[name].append(f"{path.relative_to(folder)}:{number}")
    return found


def unnamed(claims: tuple[Claim, ...], folder: Path) -> list[str]:
    found = named(folder)
    return [claim.id for claim in claims if claim.id not in found]


def unknown(claims: tuple[Claim, ...], folder: Path) -> list[str]:
    ids = {claim.id for claim in claims}
    return [f"{place}: {name}" for name, places in named(folder).items() if name not in ids for place in places]


def test_the_page_has_every_claim() -> None:
    rows = [(one.claim, one.source, one.lab, f"`{one.id}`") for one in known_claims() if one.lab is not None]
    check(DOCUMENT, "claims", table(("claim", "rests on", "in the lab", "id"), rows))


def test_the_page_has_every_settled_claim() -> None:
    rows = [(one.claim, one.source, f"`{one.id}`") for one in known_claims() if one.settled]
    check(DOCUMENT, "settled", table(("claim", "shown by", "id"), rows))


def test_each_claim_is_named_where_something_rests_on_it() -> None:
    assert unnamed(known_claims(), REPOSITORY) == [], "name each at its code (claim: ID), or drop it from claims.yaml"


def test_each_id_in_code_is_a_claim() -> None:
    assert unknown(known_claims(), REPOSITORY) == []


def test_the_commands_of_all_claims_exist() -> None:
    commands = {
        command: claim.id
        for claim in known_claims()
        for text in (claim.observe, claim.refutes, claim.matters)
        for command in re.findall(r"`sparkrack ([^`]+)`", text)
    }
    assert len(commands) > 20
    wrong = {}
    for command, claim in commands.items():
        try:
            parsed(command.split())
        except click.UsageError as fault:
            wrong[claim, command] = fault.message
    assert wrong == {}


def test_an_unnamed_claim_and_an_unknown_id_are_found(tmp_path: Path) -> None:
    first, second, *_ = known_claims()
    (tmp_path / "core").mkdir()
    (tmp_path / "core/one.py").write_text(f"import os\n# claim: {first.id}, switch.no-such-id\n")
    assert unnamed((first, second), tmp_path) == [second.id]
    assert unknown((first, second), tmp_path) == ["core/one.py:2: switch.no-such-id"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text + "\n  colour: red", "colour"),
        (lambda text: text.replace("  level: change", ""), "level"),
        (lambda text: text.replace("  level: change", "  level: reboot"), "level"),
        (lambda text: text.replace("  level: change", "  level: look"), "do not fit"),
        (lambda text: text + "\n  look: {by_hand: reason}", "do not fit"),
        (lambda text: text.replace("  level: change", "  level: look\n  look: {node: id, expect: ['(']}"), "regular"),
        (lambda text: text.replace("  area: switch", "  area: fabric"), "not the first word of the id"),
        (lambda text: text.replace("- id: switch.", "- id: Switch "), "id"),
        (lambda text: text.replace("  refutes: >-", "  refutes: >-\n    | a |"), "refutes"),
        (lambda text: f"{text}\n{text}", "occurs more than once"),
        (lambda text: text + "\n  - [", "claims.yaml"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[str], str], reason: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(FIRST)
    assert len(read_claims(path)) == 1
    path.write_text(damage(FIRST))
    with pytest.raises(ValueError, match=re.escape(str(path))) as refusal:
        read_claims(path)
    assert reason in str(refusal.value)
