"""How the section `memory` of rack.yaml is read from a node that has settings already."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.memory.adopt import ADOPT
from tests.unit.ops.shells import run, write

SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(("used", "swap"), [("", False), ("/swap.img file\t16777212\t0\t-2\n", True)])
def test_the_settings_of_a_node_are_read(tmp_path: Path, used: str, swap: bool) -> None:
    write(tmp_path, "/proc/swaps", SWAPS + used)
    write(tmp_path, "/proc/sys/vm/overcommit_memory", "1\n")
    write(tmp_path, "/proc/sys/vm/min_free_kbytes", "67584\n")
    found = {option.option: option.parse(run(option.command, tmp_path).stdout) for option in ADOPT}
    assert found == {"swap": swap, "overcommit_memory": 1, "min_free_kbytes": 67584}
