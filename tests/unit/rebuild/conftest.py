"""A desk for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rebuild.rebuild_folder import Workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Iterator[Workdir]:
    made = Workdir(tmp_path)
    yield made
    made.close()
