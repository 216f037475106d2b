"""What is held of driver and kernel: the section `driver` of rack.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, model_validator

from core.model.fields import DriverVersion, Kernel, NotEmpty, Section, invalid


class DriverOptions(Section):
    """The versions of NVIDIA driver and kernel that are installed and held; `kernel` None leaves the kernel as it is.

    `hold`: hold what is installed, with no version to install; a declared version is held with or without it.
    """

    version: Annotated[DriverVersion | None, NotEmpty] = Field(default=None, examples=['"580.159"'])
    kernel: Annotated[Kernel | None, NotEmpty] = Field(default=None, examples=["6.17.0-1021-nvidia"])
    hold: StrictBool = Field(default=False, examples=["true"])

    @model_validator(mode="after")
    def _require_something_to_hold(self) -> DriverOptions:
        if self.version is None and self.kernel is not None:
            raise invalid(
                "has a kernel and no version, and the kernel's modules are of one version of the driver",
                'write the version as well, like version: "580.159", or hold: true alone',
            )
        if self.version is None and not self.hold:
            raise invalid(
                "has neither version nor hold",
                'write hold: true to hold what is installed, version: "580.159", or leave: [driver]',
            )
        if self.version is not None and "hold" in self.model_fields_set and not self.hold:
            raise invalid("has a version and hold: false, and a declared version is held", "remove hold: false")
        return self
