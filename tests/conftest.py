"""Two workers share the tests: one has the virtual rack, the other the rest, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

LAB = Path(__file__).parent / "lab"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file go to one worker, in their order; all of the rack's are one group, since they share
    the rack, and come first, since they take longest."""
    for item in items:
        group = "virtual rack" if LAB in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: LAB not in item.path.parents)
