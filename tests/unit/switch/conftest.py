from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from .rows import MakeRack, make_rack


@pytest.fixture
def rack(tmp_path: Path) -> MakeRack:
    return partial(make_rack, tmp_path)
