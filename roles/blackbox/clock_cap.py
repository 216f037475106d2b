"""The cap on the clock of the GPU: its unit, its live state and what lifts it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.model import Node, Rack
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.blackbox.options import BlackboxOptions, cap_of

NAME = "sparkrack-clock-cap.service"
UNIT = f"/etc/systemd/system/{NAME}"
FLOOR = 300
"""MHz. The clock of an idle GPU may fall to this."""
TOLERANCE = 50
"""MHz by which a capped clock was seen above its cap (reported: 2210 with a cap of 2200 MHz)."""


def cap(rack: Rack, node: Node) -> int | None:
    """Return the cap of a node in MHz: its own, else that of its vendor; None for none."""
    return cap_of(rack.options(BlackboxOptions).clock_cap, node)


# claim: blackbox.clock-cap
def unit(rack: Rack, megahertz: int) -> ManagedFile:
    """Return the unit that sets the cap at boot."""
    text = resources.file_text(
        "roles.blackbox",
        "templates/sparkrack-clock-cap.service",
        header=header(rack.rack),
        floor=FLOOR,
        cap=megahertz,
    )
    return ManagedFile(UNIT, text.encode(), validate=validate_unit(NAME))


def clock(live: Mapping[tuple[str, str], str]) -> int | None:
    """Return the highest clock of the node's GPUs in MHz; None where it was not asked for, since there is no unit.

    Raises ValueError when nvidia-smi did not answer.
    """
    answer = live.get(("clock", "sm"))
    if answer is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}( [0-9]{1,5})*", answer):
        raise ValueError(f"clock of the GPU: unexpected probe output {answer[:80]!r}")
    return max(map(int, answer.split()))
