"""The versions that are held: the section `driver` of rack.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from core.model.fields import DriverVersion, Kernel, NotEmpty, Section


class DriverOptions(Section):
    """The versions of NVIDIA driver and kernel that are held; `kernel` None leaves the kernel alone."""

    version: DriverVersion = Field(examples=['"580.159"'])
    kernel: Annotated[Kernel | None, NotEmpty] = Field(default=None, examples=["6.17.0-1021-nvidia"])
