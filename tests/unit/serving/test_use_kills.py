"""What the clients of a changed slot had, and the page of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.generated import check
from tests.serving.use_kills import PAGE, RECORD, STEPS, measured, read, table


def answered(at: float, unit: str, **changes: Any) -> dict[str, Any]:
    return {"asked": unit, "at": at, "until": at + 0.1, "status": 200, "from": f"/models/{unit}", **changes}


def refused(at: float, retry: str | None = "5") -> dict[str, Any]:
    return {"asked": "toy", "at": at, "until": at + 0.1, "status": 503, "code": "unit_down", "retry": retry}


def test_the_longest_time_without_an_answer_and_the_refusals_are_counted() -> None:
    found = measured([answered(1, "toy"), refused(2), refused(3), answered(9, "tiny"), answered(10, "tiny")])
    assert (found["away"], found["answers"], found["requests"]) == (8.0, 3, 5)
    assert found["refused"] == {"503 unit_down": 2}


@pytest.mark.parametrize(
    "rows",
    [
        [answered(1, "toy", asked="tiny")],
        [refused(1, None)],
        [answered(1, "toy"), answered(2, "tiny"), answered(3, "toy"), answered(4, "tiny")],
    ],
    ids=["an answer of another model", "a refusal without a time", "two units that answer in turn"],
)
def test_what_no_client_may_have_ends_the_measurement(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        measured(rows)


def test_the_page_has_each_step_once_and_is_made_from_the_record() -> None:
    rounds = read(RECORD)
    assert [one["step"] for one in rounds] == [step.format(old="OLD", new="NEW") for step in STEPS]
    check(PAGE, "kills", table(rounds))
