"""What the clients of a changed slot had, and the page of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.generated import check
from tests.serving.use_kills import PAGE, RECORD, STEPS, measured, read, table, undisturbed


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


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [answered(1, "beside"), {"asked": "beside", "at": 2, "until": 3, "fault": "ConnectionError: reset"}],
        [answered(1, "beside"), {"asked": "beside", "at": 2, "until": 3, "status": 500, "code": "EngineDeadError"}],
        [answered(1, "beside"), answered(2, "toy", asked="beside")],
    ],
    ids=["nothing", "a broken request", "a refusal", "an answer of another model"],
)
def test_a_unit_beside_the_slot_has_answered_each_request_or_the_measurement_ends(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        undisturbed(rows)
    assert undisturbed([answered(1, "beside"), answered(4, "beside")]) == {"requests": 2, "away": 3.0}


def test_the_page_has_each_step_ten_times_and_is_made_from_the_record() -> None:
    rounds = read(RECORD)
    times = Counter(one["step"] for one in rounds)
    assert times == dict.fromkeys((step.format(old="OLD", new="NEW") for step in STEPS), 10)
    check(PAGE, "kills", table(rounds))
