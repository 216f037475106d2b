"""What every node of the rack is kept at: the sections of the file that may be left out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from sparkrack.fleet.frozen import FrozenMap
from sparkrack.fleet.scalars import (
    DiskSize,
    DriverVersion,
    Floor,
    Given,
    Kernel,
    LogSize,
    MemorySize,
    Vendor,
    Version,
    refuse,
)
from sparkrack.fleet.section import Frozen, Section

Role = Literal["access", "driver", "memory", "docker", "lossless", "fabric", "rdma", "images"]
"""What may be left alone on the nodes. The gates may not; of a switch only what is declared is managed anyway."""


def _once(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    for place, role in enumerate(roles):
        if role in roles[:place]:
            raise refuse(f"lists {role} twice", "list every role once")
    return roles


Leave = Annotated[tuple[Role, ...], AfterValidator(_once)]
"""Roles that no run applies to any node, and no check judges."""


class Preflight(Section):
    """What a node must have before anything is changed on it.

    `disk_free`: room on / and where docker keeps images. `clock_skew`: seconds that a clock may be off from the
    median of the fleet. `bios`: the oldest BIOS of each vendor; ASUS 0103 gives one half of a port two PCIe lanes
    instead of four (NVIDIA forum 367853, mended by 0104).
    """

    disk_free: DiskSize = "10G"
    clock_skew: Annotated[StrictInt, Field(ge=1, le=300)] = 5
    bios: Frozen[Vendor, Version] = Field(default=FrozenMap({"asus": "0104"}), examples=['{asus: "0104"}'])


class Driver(Section):
    """The versions of NVIDIA driver and kernel that are held; `kernel` None leaves the kernel alone."""

    version: DriverVersion = Field(examples=['"580.159"'])
    kernel: Annotated[Kernel | None, Given] = Field(default=None, examples=["6.17.0-1021-nvidia"])


class Memory(Section):
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


class Docker(Section):
    """The memory ceiling of all containers of a node together, and of each; and how their engine is kept.

    A container's log is `log_files` files of `log_size`. `live_restore`: containers outlive a restart of the engine.
    `restart`: whether the engine may be restarted while containers run that would die of it, or only when idle.
    """

    memory: MemorySize = Field(default="100G", examples=["100G"])
    log_size: LogSize = Field(default="50M", examples=["50M"])
    log_files: Annotated[StrictInt, Field(ge=1, le=100)] = 5
    live_restore: StrictBool = False
    restart: Literal["idle", "always"] = "idle"


class Rdma(Section):
    """How the libraries that span nodes use the fabric.

    `sockets`: the network for what they say to each other beside RDMA; the fabric has one address for each half, so a
    ring, whose addresses are pairwise, needs management.
    """

    sockets: Literal["management", "fabric"] = "management"
