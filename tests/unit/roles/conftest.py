"""What tests of several files need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.roles.dockers import Workdir


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workdir:
    return Workdir(tmp_path, monkeypatch)
