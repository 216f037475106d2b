"""One node at a time: what a rollout notes of each step."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from core.ops.rollout import Rollout


def change(rollout: Rollout, executing: bool) -> Generator[str, None, None]:
    host: Any = SimpleNamespace(state=SimpleNamespace(is_executing=executing))
    with rollout.step(host, "spark1"):
        yield "first command"
        yield "second command"


@pytest.mark.parametrize(("executing", "done"), [(True, {"spark1"}), (False, set())])
def test_all_commands_sent(executing: bool, done: set[str]) -> None:
    rollout = Rollout()
    list(change(rollout, executing))
    assert (rollout.done, rollout.failed, rollout.blockers) == (done, None, ())


@pytest.mark.parametrize(("executing", "failed"), [(True, "spark1"), (False, None)])
def test_a_step_that_ends_early(executing: bool, failed: str | None) -> None:
    """pyinfra closes the generator of an operation at its first failing command, and in a plan at its first command."""
    rollout = Rollout()
    host_change = change(rollout, executing)
    next(host_change)
    host_change.close()
    assert (rollout.done, rollout.failed) == (set(), failed)
    assert bool(rollout.blockers) == executing


def test_a_step_that_raises() -> None:
    rollout = Rollout()
    host_change = change(rollout, True)
    next(host_change)
    with pytest.raises(OSError, match="gone"):
        host_change.throw(OSError("gone"))
    assert rollout.blockers == ("not touched, since spark1 failed and nodes change one at a time",)
