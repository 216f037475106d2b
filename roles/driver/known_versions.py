"""What is known against the driver and the kernel that rack.yaml declares: what `sparkrack check` warns of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.advisories.advisories import KERNEL, NVIDIA_DRIVER, PAGE, WITHOUT_KHO, known_against
from core.model import Rack
from core.model.errors import RuleViolation
from roles.driver.options import DriverOptions


def notes(rack: Rack) -> Iterator[RuleViolation]:
    """Yield a warning for each advisory against a declared version, before it is installed."""
    driver = rack.declared(DriverOptions)
    if driver is None:
        return
    for key, subject, version in (
        ("version", NVIDIA_DRIVER, driver.version or ""),
        ("kernel", KERNEL, driver.kernel or ""),
    ):
        for row in known_against(subject, version, (WITHOUT_KHO,)):
            yield RuleViolation(
                ("driver", key),
                f"{subject} {version}: {row.effect}",
                "; ".join(filter(None, (row.remedy, f"({row.id}, {PAGE})"))),
            )
