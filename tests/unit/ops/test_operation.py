"""The skeleton of operations: what a changeset may hold, and a role's function without pyinfra."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra.api.command import StringCommand

from core.ops.operation import Changeset, ChangesetError
from core.util.event import Action, acted

EVENT = acted(Action.START, "a.service")
COMMAND = StringCommand("systemctl start a.service")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"commands": (COMMAND,)}, "commands that no event announces"),
        ({"commands": (COMMAND,), "in_sync_reason": "nothing to do"}, "commands that no event announces"),
        ({"events": EVENT}, "events without a command"),
        ({"events": EVENT, "in_sync_reason": "nothing to do"}, "events without a command"),
        ({}, "is one of"),
        ({"provisional": True}, "is one of"),
        ({"blockers": ("no",), "events": EVENT, "commands": (COMMAND,)}, "is one of"),
        ({"blockers": ("no",), "in_sync_reason": "nothing to do"}, "is one of"),
        ({"in_sync_reason": "nothing to do", "events": EVENT, "commands": (COMMAND,)}, "is one of"),
    ],
)
def test_a_changeset_that_contradicts_itself(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ChangesetError, match=fault):
        Changeset(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"blockers": ("no",)},
        {"in_sync_reason": "nothing to do"},
        {"events": EVENT, "commands": (COMMAND,)},
        {"events": EVENT, "provisional": True},
    ],
)
def test_a_changeset_that_can_be_carried_out(fields: dict[str, Any]) -> None:
    Changeset(**fields, warnings=EVENT)


def test_the_fault_is_not_taken_for_an_unknown_fact() -> None:
    """An operation refuses a host for UnknownError and ValueError; a fault of the program must not hide there."""
    assert not issubclass(ChangesetError, ValueError)
