from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.switch.in_memory_switch import Clock, Device
from tests.unit.switch.racks import MakeRack, make_rack


@pytest.fixture
def rack(tmp_path: Path) -> MakeRack:
    return partial(make_rack, tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("transaction", "executor", "wait_for_links", "leg_recovery"):
        monkeypatch.setattr(f"switch.{module}.time", clock)
    return clock


@pytest.fixture
def device(clock: Clock) -> Device:
    return Device(clock)
