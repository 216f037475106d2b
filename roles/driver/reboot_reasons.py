"""Reasons for a reboot of a node. Pure; this module never reboots one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from roles.driver.desired import NodePackage, majors, of_the_driver
from roles.driver.options import DriverOptions

ASKED = "/run/reboot-required"
ASKING = "/run/reboot-required.pkgs"


def reasons(
    driver: DriverOptions, found: Collection[NodePackage], kernel: str, loaded: str, asked: bool, asking: str
) -> list[str]:
    """Return the reasons, one line each. `kernel` is the running kernel, `loaded` the version of the loaded driver, a
    line for each GPU; `asked` and `asking`: whether a package requested a reboot, and which. Raises ValueError for an
    invalid version.
    """
    lines = []
    if driver.kernel is not None and kernel != driver.kernel:
        lines.append(f"kernel {kernel} runs, {driver.kernel} is declared{_newer_kernel(found, driver.kernel)}")
    ours = (one for number in majors(found, driver) for one in of_the_driver(found, number))
    installed = {upstream(one.version) for one in ours if one.installed}
    running = set(loaded.split())
    if strange := [word for word in running if not re.fullmatch(r"[0-9][0-9A-Za-z.+~-]*", word)]:
        raise ValueError(f"driver-loaded: {min(strange)!r} is not a version")
    if installed and not (running and running <= installed):
        now = f"driver {', '.join(sorted(running))} is loaded" if running else "no driver is loaded"
        lines.append(f"{now}, {', '.join(sorted(installed))} is installed")
    if asked:
        names = ", ".join(dict.fromkeys(asking.split()))
        lines.append(f"{names or 'a package'} asked for it")
    return lines


def upstream(version: str) -> str:
    """A package's version without what its packager adds: 580.159.03 of 580.159.03-0ubuntu1."""
    return version.rpartition(":")[2].rpartition("-")[0] or version


# claim: driver.grub-newest
def _newer_kernel(found: Iterable[NodePackage], kernel: str) -> str:
    """GRUB starts the newest kernel that is installed, so that a reboot alone does not bring an older one."""
    names = [
        one.bare.removeprefix("linux-image-") for one in found if one.there and one.bare.startswith("linux-image-")
    ]
    newer = [name for name in names if name[:1].isdigit() and _version_order(name) > _version_order(kernel)]
    if not newer:
        return ""
    return f"; {max(newer, key=_version_order)} is newer and what GRUB starts (docs/runbooks/driver.md)"


def _version_order(kernel: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", kernel)]
