"""What a node must have before anything is changed on it: the section `preflight` of rack.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from core.model.fields import DiskSize, Frozen, FrozenDict, Section, Vendor, Version


class PreflightOptions(Section):
    """What a node must have before anything is changed on it.

    `disk_free`: room on / and where docker keeps images. `clock_skew`: seconds that a clock may be off from the
    median of the fleet. `bios`: the oldest BIOS of each vendor; ASUS 0103 gives one half of a port two PCIe lanes
    instead of four (NVIDIA forum 367853, fixed by 0104).
    """

    disk_free: DiskSize = "10G"
    clock_skew: Annotated[StrictInt, Field(ge=1, le=300)] = 5
    bios: Frozen[Vendor, Version] = Field(default=FrozenDict({"asus": "0104"}), examples=['{asus: "0104"}'])
