"""NCCL of a unit's image, as the lock file has it: what `sparkrack check` warns of before a start. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.advisories.advisories import NCCL, PAGE, PIP_WHEEL, known_against
from core.model import Rack
from core.model.errors import RuleViolation, truncate
from core.model.image_lock import Pin
from serving.engines.registry import ENGINES
from serving.launch import NCCL_CONF, covers_nccl_conf
from serving.options import ServedUnit


def notes(rack: Rack, unit: ServedUnit, pin: Pin | None) -> Iterator[RuleViolation]:
    """Yield a warning for what is known against NCCL of the image, or that it is not known, and for its settings.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units. NCCL does not matter to one of a single rank.
        pin: its image in the lock file; None if that has none.
    """
    ranks = len(unit.ranks(rack.nodes))
    if ranks < 2:
        return
    nccl = pin.nccl if pin else None
    if nccl and nccl.conf and covers_nccl_conf(unit, ranks):
        lines = truncate(", ".join(nccl.conf))
        what = f"its {NCCL_CONF} has {lines}, and the ranks get an empty file instead"
        yield RuleViolation(("image",), what, "write into env what they need")
    if not ENGINES[unit.engine].package:
        return
    if nccl is None:
        what = f"NCCL of {truncate(unit.image)} is not known yet: the lock file does not have it"
        yield RuleViolation(("image",), what, "`sparkrack apply --only images` asks the image and records it")
    elif nccl.version is None:
        what = f"NCCL of {truncate(unit.image)} is unknown: no container of it tells a version"
        right = "look for its NCCL by hand: what is known against versions of NCCL is not compared"
        yield RuleViolation(("image",), what, right)
    else:
        for row in known_against(NCCL, nccl.version, (PIP_WHEEL,) if nccl.build == "wheel" else ()):
            right = "; ".join(filter(None, (row.remedy, f"({row.id}, {PAGE})")))
            yield RuleViolation(("image",), f"NCCL {nccl.version} of the image: {row.effect}", right)
