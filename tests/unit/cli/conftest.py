"""Shared fixtures of several files, created once."""

from __future__ import annotations

import pytest

from tests.unit.cli.apply_cases import Runs, play


@pytest.fixture(scope="session")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every case of `apply_cases`, played."""
    return play(tmp_path_factory.mktemp("apply"))
