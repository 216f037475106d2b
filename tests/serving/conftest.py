"""A rack of nodes in network namespaces (root), and a unit that a test steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.engines import STAND_IN, EngineOfTests, installed, real_ray, real_vllm
from tests.serving.serving_rack import ServingRack
from tests.serving.stepped_unit import SteppedUnit


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> EngineOfTests:
    """The stand-in, or the engine that the test is parametrized with."""
    name = getattr(request, "param", STAND_IN.name)
    if name == STAND_IN.name:
        return STAND_IN
    folder = installed("ray") if name == "ray" else installed()
    if folder is None:
        pytest.skip(f"{name} is not installed: .venv/bin/python scripts/conformance_engine.py fetch")
    return {"vllm": real_vllm, "ray": real_ray}[name](folder)


@pytest.fixture
def rack(tmp_path: Path, request: pytest.FixtureRequest, engine: EngineOfTests) -> Iterator[ServingRack]:
    """Two nodes that are not connected and booted yet, or as many as the test is parametrized with."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = ServingRack(tmp_path, getattr(request, "param", 2), engine)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def unit(tmp_path: Path) -> SteppedUnit:
    """A unit that is down and was never started."""
    return SteppedUnit(tmp_path)
