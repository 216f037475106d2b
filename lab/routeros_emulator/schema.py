"""The command tree of RouterOS 7.23, as far as the emulator has it: schema.json, whose header names the source."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

#: By path, then by command: the names of the arguments.
Tree = dict[str, dict[str, list[str]]]


@cache
def tree() -> Tree:
    """Give all paths with their commands and arguments."""
    data: dict[str, Any] = json.loads((Path(__file__).parent / "schema.json").read_text())
    paths: Tree = data["paths"]
    return paths
