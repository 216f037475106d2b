"""Why a node should be rebooted. Pure; nothing here reboots one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from roles.driver.state import Package, major, of_the_driver
from sparkrack.fleet import Driver

ASKED = "/run/reboot-required"
ASKING = "/run/reboot-required.pkgs"


def reasons(
    driver: Driver, found: Collection[Package], kernel: str, loaded: str, asked: bool, asking: str
) -> list[str]:
    """One line each. `kernel` runs, `loaded` is the version of the loaded driver, a line for each GPU; `asked` and
    `asking`: whether a package asked for a reboot, and which. Raises ValueError for a version that is none."""
    lines = []
    if driver.kernel is not None and kernel != driver.kernel:
        lines.append(f"kernel {kernel} runs, {driver.kernel} is declared{_newer(found, driver.kernel)}")
    installed = {upstream(one.version) for one in of_the_driver(found, major(driver)) if one.installed}
    running = set(loaded.split())
    if strange := [word for word in running if not re.fullmatch(r"[0-9][0-9A-Za-z.+~-]*", word)]:
        raise ValueError(f"driver-loaded: {min(strange)!r} is no version")
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


def _newer(found: Iterable[Package], kernel: str) -> str:
    """GRUB starts the newest kernel that is installed, so that a reboot alone does not bring an older one."""
    names = [
        one.bare.removeprefix("linux-image-") for one in found if one.there and one.bare.startswith("linux-image-")
    ]
    newer = [name for name in names if name[:1].isdigit() and _order(name) > _order(kernel)]
    if not newer:
        return ""
    return f"; {max(newer, key=_order)} is newer and what GRUB starts (docs/runbooks/driver.md)"


def _order(kernel: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", kernel)]
