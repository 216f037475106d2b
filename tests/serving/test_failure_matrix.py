"""Each failure of the matrix once: what reports it, how it ends, and that nothing is left. No test judges its times."""

from __future__ import annotations

import os

import pytest

from tests.serving.failure_cells import CELLS, Cell
from tests.serving.failure_matrix import PAGE, RECORD, read, renewed, tables
from tests.serving.failure_run import run

PACE = 0.25
"""Of the times of a unit, and of the unit files of systemd: no test judges times. A lease of 2.5 s is still five
questions long, so that a busy machine does not end it."""
PACES = {"link-flaps": 0.5}
"""The kernel sends the first packet of a connection again after 1 and 3 s, whatever the pace: too late for 2.5 s."""
FIRST_TIER = ("rank-killed-load", "coordinator-state-lost", "agent-frozen")
"""The others of the matrix have a test of their own kind in this folder; so they are soak tests."""


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, id=cell.name, marks=() if cell.name in FIRST_TIER else pytest.mark.soak) for cell in CELLS],
)
def test_a_failure_is_named_and_leaves_nothing(cell: Cell) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    outcome = run(cell, PACES.get(cell.name, PACE))
    assert outcome.faults == []


def test_the_page_has_the_recorded_runs() -> None:
    found = read(RECORD)
    assert any(found.values())
    page = PAGE.read_text()
    assert renewed(page, tables(found)) == page, "renew it: python -m tests.serving.failure_matrix --runs 0 --docs"
