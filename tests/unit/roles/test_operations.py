"""Every case in tests/cases/operations, in every kind of run: a plan, a dry run, one that shows its plan and then
executes it, and one that executes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from tests.unit.engine.fake_rack import node_in, without_shell
from tests.unit.engine.operation_cases import check_plan
from tests.unit.ops.fakenode import MODES, Answers, run
from tests.unit.roles.cases import DEPLOYS, OPERATIONS, matches, named, rack_of, read

PLANNED = ("dry", "asked")
"""Runs that count what they would change before they execute anything."""


CASES = sorted(OPERATIONS.glob("*/*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_case_ends_as_its_file_says_in_every_kind_of_run(path: Path) -> None:
    role, case = path.parent.name, read(path)
    assert case["ends"] in ("right", "changed", "refused", "failed")
    rack = rack_of(case)
    with without_shell():
        for mode in MODES:
            with named(mode):
                check_run(role, case, rack, mode)
    with named("plan"):
        check_plan(role, path.stem, case, rack)


def check_run(role: str, case: dict[str, Any], rack: Rack, mode: str) -> None:
    """Run a case; it must send what its file says, and end so."""
    ends, name = case["ends"], next(iter(rack.nodes))
    answers = Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")
    ended = run({"spark1": {"rack": rack, "node": rack.nodes[name], "answers": answers}}, DEPLOYS[role], mode)
    reported = ended.reported
    wanted = [] if mode == "dry" or ends in ("right", "refused") else case["sent"]
    assert len(answers.sent) == len(wanted), (answers.sent, reported)
    for sent, command in zip(answers.sent, wanted, strict=True):
        assert matches(sent, command), (sent, command)
    if ends == "refused" or (ends == "failed" and mode != "dry"):
        assert ended.failed == ["spark1"], reported
    else:
        assert ended.failed == [], reported
    if ends == "refused" or mode != "dry":
        for text in case.get("says", []):
            assert text in ended.log, reported
    assert "Traceback" not in ended.log
    if mode in PLANNED:
        assert (ended.changing > 0) == (ends != "right")
