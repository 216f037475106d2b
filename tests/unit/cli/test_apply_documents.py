"""What the documents show and say of `sparkrack apply`."""

from __future__ import annotations

import json
import re
from itertools import chain

from sparkrack.engine.journal import EVENTS
from tests.generated import REPOSITORY, check
from tests.unit.cli.apply_cases import OTHER, Runs
from tests.unit.cli.rack_folder import World

RUNBOOK = (
    *("; if that run is dead: sparkrack unlock", "/run/sparkrack/run.lock cannot be read"),
    *(
        "holds the rack, not",
        "which stores the lock of the rack, is unreachable",
        "the lock of the rack cannot be taken",
    ),
    *("the lock could not be released", "the lock was gone before the end", "the lock is now that of"),
    *(
        "things have moved",
        "the order of the steps",
        "the plan is about rack",
        "cannot be brought to the declared state",
    ),
    *(
        "there is no terminal for a prompt; pass -y, or name a plan",
        "ended in the middle of",
        "failed in the middle of",
    ),
    *("the connection was lost", "a fault of this program, please report it", "no journal can be kept"),
    "the journal is not whole",
)
"""What these tests, and those of tests/unit/engine, see the program say."""


def alike(text: str, world: World) -> str:
    """What a run printed, as it is printed every time."""
    (path,) = world.journals
    for old, new in (
        (str(path.parent), "~/.local/state/sparkrack/ring/runs"),
        (str(world.folder), "~/rack"),
        (path.stem, OTHER.id),
        (f'"operator": "{world.journal[0]["operator"]}"', '"operator": "ana@laptop"'),
    ):
        text = text.replace(old, new)
    text = re.sub(r'"at": "[^"]*"', '"at": "2026-03-14T09:15:00.250+00:00"', text)
    text = re.sub(r'"plan": "[0-9a-f]{16}"', '"plan": "4f1d2a7be09c3358"', text)
    return re.sub(r"(, |: )\d+\.\d+( s|})", r"\g<1>0.1\2", text)


def test_the_document_shows_a_run_that_fails(applied: Runs) -> None:
    world, ended = applied["canary fails"]
    shown = ended.stdout[ended.stdout.index("3 hosts") :]
    check("docs/apply.md", "apply failed", alike(shown, world))
    check("docs/apply.md", "apply journal", alike(world.journals[0].read_text(), world))


def test_the_document_names_every_event_and_field(applied: Runs) -> None:
    text = (REPOSITORY / "docs/apply.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    assert set(rows) == set(EVENTS)
    journals = [world.journal for world, _ in applied.values() if world.journals]
    for line in chain.from_iterable(journals):
        for name in set(line) - {"run", "at", "event"}:
            assert f"`{name}`" in rows[line["event"]], line
    assert {line["event"] for line in chain.from_iterable(journals)} == set(EVENTS)
    json_text = text.partition("## --json")[2].partition("\n## ")[0]
    for name in {**json.loads(applied["json"][1].stdout), **json.loads(applied["json"][1].stdout)["hosts"][0]}:
        assert f"`{name}`" in json_text or f'"{name}"' in json_text, name


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/runs.md").read_text()
    for words in RUNBOOK:
        assert words in text, words
