"""`status` and `drift` give the same code for the same state of a rack: in sync, a difference, unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.util.event import value_change
from roles.images.desired import NO_ENGINE
from sparkrack.drift.findings import drift_of
from tests.unit.drift.plans import machine, plan, unreachable
from tests.unit.status.machines import SWAPS, Machines, machines, reference


def swap_on(made: Machines) -> None:
    made.nodes["spark1"]["swap"] = (0, [SWAPS, "/swap.img file 8388604 0 -2"])


def silent(made: Machines) -> None:
    made.silent["spark2"] = "no route to host"


def docker_stopped(made: Machines) -> None:
    made.nodes["spark1"]["images"] = (0, [NO_ENGINE])


CHANGE = machine("spark1", ("memory", value_change("swap", "on", "off")))
CASES: dict[str, tuple[tuple[Callable[[Machines], None], ...], int]] = {
    "in sync": ((), 0),
    "a difference": ((swap_on,), 2),
    "docker does not run": ((docker_stopped,), 2),
    "unknown": ((silent,), 1),
    "both": ((swap_on, silent), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_they_agree(case: str, tmp_path: Path) -> None:
    changes, code = CASES[case]
    made = machines(reference(tmp_path))
    for change in changes:
        change(made)
    first = CHANGE if {swap_on, docker_stopped} & {*changes} else machine("spark1")
    second = unreachable("spark2") if silent in changes else machine("spark2")
    assert (made.status().code, drift_of(plan(first, second)).code) == (code, code)
