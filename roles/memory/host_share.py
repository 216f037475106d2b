"""What the units of `serving` leave for the host of a node."""

from __future__ import annotations

from collections.abc import Iterator

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.fields import mebibytes
from core.model.partial_rack import PartialRack
from core.model.role import reserved_gib
from roles.memory.options import SYSTEM_GIB, MemoryOptions, host_gib
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.fit import host_memory_of
from serving.options import served_units_of_part


def check_host_share(partial: PartialRack, memory: MemoryOptions, _cabling: Cabling) -> Iterator[RuleViolation]:
    """What a unit of `serving` leaves of a node must hold the floor of the guard, what the kernel keeps free, and the
    system: the guard would end the engine while it loads."""
    floor = mebibytes(memory.floor) / 1024 if memory.floor else 0.0
    kept = memory.min_free_kbytes / 1024**2
    needed = host_gib(memory)
    reserved = reserved_gib(partial.options.get)
    for unit in served_units_of_part(partial).values() if "memory" not in partial.leave else ():
        host = host_memory_of(unit, unit.parallel.tensor * unit.parallel.pipeline).gib if unit.memory else 0.0
        node = MEMORY_GIB - reserved
        left = (1 - (unit.memory or 0)) * node - host
        if host and node - left > HIGHEST_SHARE * node:
            continue  # the rules of the units refuse it
        if left < needed:
            beside = f" with {host:.1f} GiB of the host's memory that its args take" if host else ""
            yield RuleViolation(
                ("serving", "units", unit.name, "memory"),
                f"{unit.memory:.2f}{beside} leaves {left:.1f} GiB for the host, which needs {needed:.1f} (memory.floor "
                f"{floor:.1f}, memory.min_free_kbytes {kept:.1f}, system {SYSTEM_GIB})",
                f"write at most {int((1 - (needed + host) / node) * 100) / 100:.2f}",
            )
