"""How the kernel of a node treats memory: the section `memory` of rack.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.fields import Floor, Section, mebibytes
from core.model.partial_rack import PartialRack
from core.model.role import reserved_gib
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.fit import host_memory_of
from serving.options import served_units_of_part

SYSTEM_GIB = 4
"""GiB for the system, page tables and compilers beside an engine, above what the kernel and the guard keep free."""


class MemoryOptions(Section):
    """How the kernel of a node treats memory, which CPU and GPU share on a GB10.

    `min_free_kbytes` is in KiB: below 1024 the kernel breaks (kernel documentation, "vm.min_free_kbytes"),
    above about 5 % of the memory it starves what runs (inferred).
    `overcommit_memory` 2 is not offered: CUDA reserves more address space than there is memory (inferred).
    `floor`: all containers are ended when less memory than this is available; no limit of the kernel counts what CUDA
    takes, this does. One site runs with 3 GiB (reported: christopherowen/spark-ds41f).
    """

    swap: StrictBool = False
    overcommit_memory: Annotated[StrictInt, Field(ge=0, le=1)] = 0
    min_free_kbytes: Annotated[StrictInt, Field(ge=1024, le=6 * 1024 * 1024)] = 1572864
    floor: Floor = Field(default="3G", examples=["3G"])


def check_host_share(partial: PartialRack, memory: MemoryOptions, _cabling: Cabling) -> Iterator[RuleViolation]:
    """What a unit of `serving` leaves of a node must hold the floor of the guard, what the kernel keeps free, and the
    system: the guard would end the engine while it loads."""
    floor = mebibytes(memory.floor) / 1024 if memory.floor else 0.0
    kept = memory.min_free_kbytes / 1024**2
    needed = floor + kept + SYSTEM_GIB
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
