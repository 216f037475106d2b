"""What tests of several files need."""

from __future__ import annotations

from pathlib import Path

import pytest

from .dockers import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)
