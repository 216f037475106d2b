"""What an upgrade does to a switch, or why it must not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.advisories.advisories import Severity, advisory_line, version_key
from core.routeros.errors import RefusedError
from core.routeros.versions import release
from switch.advisories import COMPROMISED, known_against_release
from switch.preconditions import wrong_device
from switch.upgrade.packages import PackageFile, PackageFolder
from switch.upgrade.switch_state import SwitchUnit

if TYPE_CHECKING:
    from core.model import Switch


@dataclass(frozen=True)
class UpgradePlan:
    """`installs`: packages that the switch does not have in this version. `firmware`: whether the firmware follows.
    `warnings`: a line each, to read before the steps."""

    unit: SwitchUnit
    version: str
    installs: tuple[PackageFile, ...]
    firmware: bool
    ignored: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.installs and not self.firmware

    @property
    def lines(self) -> tuple[str, ...]:
        """The steps, a line each; () when there is nothing to do."""
        unit, named = self.unit, ", ".join(package.name for package in self.installs)
        current, offered = unit.firmware
        ignored = [f"not used: {file}, which the switch does not need" for file in self.ignored]
        if self.empty:
            return ()
        down = "the switch restarts, every link of it is down until it is back"
        install = (
            f"RouterOS {unit.version} -> {self.version}: {named}; {down}",
            f"firmware {current} -> the one of RouterOS {self.version}; {down}",
        )
        return (*ignored, *(install if self.installs else (f"firmware {current} -> {offered}; {down}",)))


# claim: switch.upgrade.configuration
def plan_upgrade(switch: Switch, folder: PackageFolder, unit: SwitchUnit) -> UpgradePlan:
    """Return the steps for the unit that was read. Raises RefusedError with every reason not to begin."""
    if reasons := wrong_device(switch, unit.reading):
        raise RefusedError(reasons)
    needed = dict.fromkeys(("routeros", *unit.packages, switch.hardware.driver_package))
    installs = tuple(
        package
        for name, package in folder.packages.items()
        if name in needed and unit.packages.get(name) != package.version
    )
    current, offered = unit.firmware
    plan = UpgradePlan(
        unit=unit,
        version=folder.version,
        installs=installs,
        firmware=bool(installs) or current != offered,
        ignored=tuple(package.file for name, package in folder.packages.items() if name not in needed),
        warnings=tuple(_list_warnings(switch, folder, unit, installs)),
    )
    if reasons := tuple(_list_blockers(switch, folder, plan, tuple(needed))):
        raise RefusedError(reasons)
    return plan


def _list_warnings(
    switch: Switch, folder: PackageFolder, unit: SwitchUnit, installs: tuple[PackageFile, ...]
) -> Iterator[str]:
    if unit.marked:
        yield f"{COMPROMISED}; keep its log elsewhere first, a restart clears it"
    for row in known_against_release(switch, folder.version):
        if row.severity is Severity.DEFECT or not installs:  # else it is refused
            yield f"{'fault' if row.fault else 'note'}: {advisory_line(row, folder.version)}"


def _list_blockers(switch: Switch, folder: PackageFolder, plan: UpgradePlan, needed: tuple[str, ...]) -> Iterator[str]:
    unit = plan.unit
    running = release(unit.version)
    if running is None:
        yield f"the device reports RouterOS {unit.version!r}, which is not a version"
        return
    if running > folder.release:
        yield (
            f"the device runs RouterOS {unit.version}, newer than {folder.version}: a downgrade is not supported; take "
            "packages of its own version or a newer one"
        )
        return
    if plan.empty:
        return
    if unit.held:
        yield f"safe mode is held by {unit.held}; wait for that session, or end it: /safe-mode/print"
    if unit.armed:
        yield (f"rollback timer {', '.join(unit.armed)} is armed and would act after the restart: sparkrack apply")
    if not plan.installs:
        return
    if switch.release is not None and version_key(folder.version) != version_key(switch.release):
        yield f"the packages are of RouterOS {folder.version}; rack.yaml declares release {switch.release}"
    for row in known_against_release(switch, folder.version):
        if row.severity is not Severity.DEFECT:
            yield f"the packages are affected: {advisory_line(row, folder.version)}"
    if unit.architecture != folder.architecture:
        yield f"the packages are for {folder.architecture}; the device is {unit.architecture or '(not reported)'}"
    for name in needed:
        if name not in folder.packages and unit.packages.get(name) != folder.version:
            why = "is installed on the device" if name in unit.packages else "is needed for its cages"
            yield f"{name}-{folder.version}-{folder.architecture}.npk is missing: {name} {why}"
    driver = switch.hardware.driver_package
    if driver in unit.disabled:
        yield f"package {driver} is disabled; without it the cages do not work: /system/package/enable {driver}"
    wanted = {package.file: package for package in plan.installs}
    for file in unit.files:
        if file.endswith(".npk") and "/" not in file and file not in wanted:
            yield f"{file} is on the device and would be installed, too; remove it: /file/remove {file}"
    absent = [package for package in plan.installs if unit.files.get(package.file) != package.size]
    if absent and unit.fetch:
        yield (
            f"{unit.fetch}, then press its reset or mode button within 5 minutes. Or copy the packages to it (WinBox, "
            "SFTP), and run again"
        )
    space = _needed_bytes(plan, absent)
    # claim: switch.upgrade.space
    if unit.free < space:
        yield f"the device has {unit.free} bytes free; {space} are needed for the packages and their installation"


def _needed_bytes(plan: UpgradePlan, absent: list[PackageFile]) -> int:
    """Bytes for the files, and as much again to install them. That no more is needed is inferred."""
    present = {package.file: plan.unit.files.get(package.file) or 0 for package in absent}
    uploads = sum(package.size - min(present[package.file], package.size) for package in absent)
    return uploads + sum(package.size for package in plan.installs)
