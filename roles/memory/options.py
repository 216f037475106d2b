"""How the kernel of a node treats memory: the section `memory` of rack.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from core.model.fields import Floor, Section, mebibytes

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


def host_gib(memory: MemoryOptions) -> float:
    """Return the GiB of a node that engines leave: the floor of the guard, what the kernel keeps free, and the system.
    The guard would end an engine while it loads."""
    floor = mebibytes(memory.floor) / 1024 if memory.floor else 0.0
    return floor + memory.min_free_kbytes / 1024**2 + SYSTEM_GIB
