"""How `sparkrack adopt` reads a node's memory settings into the section `memory` of rack.yaml."""

from __future__ import annotations

import re

from core.model.errors import truncate
from core.model.role import AdoptedOption
from roles.memory.desired import active, live_path


def _is_swapping(proc_swaps: str) -> bool:
    return bool(active(proc_swaps))


def _parse_number(text: str) -> int:
    word = text.strip()
    if not re.fullmatch(r"[0-9]{1,12}", word):
        raise ValueError(f"{truncate(word)} is not a number")
    return int(word)


ADOPT = (
    AdoptedOption("swap", "cat /proc/swaps", _is_swapping),
    AdoptedOption("overcommit_memory", f"cat {live_path('vm.overcommit_memory')}", _parse_number),
    AdoptedOption("min_free_kbytes", f"cat {live_path('vm.min_free_kbytes')}", _parse_number),
)
