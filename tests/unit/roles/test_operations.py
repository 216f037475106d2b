"""Every case in tests/cases/operations, in every kind of run: of the first tier is the run that shows its plan and then
executes it, and for every third case the two others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ops.fakenode import MODES, run
from tests.unit.roles.cases import DEPLOYS, OPERATIONS, answers_of, matches, rack_of, read

PLANNED = ("dry", "asked")
"""Runs that count what they would change before they execute anything."""
FIRST_TIER = (MODES, ("asked",), ("asked",))
"""Of a case and of the two after it."""
RUNS = [
    pytest.param(
        path,
        mode,
        id=f"{path.parent.name}-{path.stem}-{mode}",
        marks=() if mode in FIRST_TIER[place % len(FIRST_TIER)] else pytest.mark.soak,
    )
    for place, path in enumerate(sorted(OPERATIONS.glob("*/*.yaml")))
    for mode in MODES
]


@pytest.mark.parametrize(("path", "mode"), RUNS)
def test_case(path: Path, mode: str) -> None:
    role, case = path.parent.name, read(path)
    rack, answers, ends = rack_of(case), answers_of(role, case), case["ends"]
    assert ends in ("right", "changed", "refused", "failed")
    data = {"rack": rack, "node": next(iter(rack.nodes.values())), "answers": answers}
    ended = run({"spark1": data}, DEPLOYS[role], mode)
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
