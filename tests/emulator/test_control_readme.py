"""The emulator's README names every menu, every control request and every fault that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from lab.routeros_emulator import faults, test_control
from lab.routeros_emulator.menus import MENUS

TEXT = (Path(test_control.__file__).parent / "README.md").read_text()


def test_menus() -> None:
    named = set(re.findall(r"`(/[a-z0-9/-]+)`", TEXT.partition("The menus:")[2]))
    there = {menu.path for menu in MENUS if menu.path and "/switch/qos" not in menu.path}
    assert named == there


def test_control_requests() -> None:
    listed = set(re.findall(r'"op": "(\w+)"', TEXT))
    operations = Path(test_control.__file__).read_text().partition("self._operations")[2].partition("\n        }")[0]
    there = set(re.findall(r'^            "(\w+)": ', operations, re.MULTILINE))
    assert listed == there


def test_fault_kinds() -> None:
    table = TEXT.partition("### Faults")[2].partition("## What it does")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(get_args(faults.Kind))
