"""How long a unit is away when it is recreated: from the figures of its latest start. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping


def away(figures: Mapping[str, float]) -> str:
    """Return a clause from the figures of a keeper's record: seconds of gates, and from there until it was ready."""
    if "ready_s" not in figures:
        return "away for an unknown time: no figure of a good start is recorded"
    took = figures["ready_s"] + figures.get("gates_s", 0.0)
    return f"away for about {max(1, math.ceil(took / 60))} min: its last start took {took:.0f} s"
