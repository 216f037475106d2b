"""Facts of a node about its driver, kernel and automatic upgrades."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.model import Rack
from core.ops import apt, host_facts, systemd_probes
from roles.driver import desired, reboot_reasons, upgrade_blockers
from roles.driver.options import DriverOptions
from serving import running_engines as running_units

PACKAGES = "driver-packages"
INTERRUPTED = "driver-dpkg-interrupted"
KERNEL = "driver-kernel"
LOADED = "driver-loaded"
UNITS = "driver-update-units"
SETTINGS = "driver-apt-settings"

host_facts.register(
    "driver",
    host_facts.Probe(
        files=(upgrade_blockers.CONF, reboot_reasons.ASKED, reboot_reasons.ASKING),
        commands={
            PACKAGES: desired.listed(),
            INTERRUPTED: apt.INTERRUPTED,
            KERNEL: "uname -r",
            # nvidia-smi reports the same in ten times the time. If it cannot reach the driver, the answer is: none.
            LOADED: "if [ -r /sys/module/nvidia/version ]; then cat /sys/module/nvidia/version; "
            "elif command -v nvidia-smi > /dev/null; then "
            'o=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader) && echo "$o" || true; fi',
            UNITS: systemd_probes.list_unit_files(upgrade_blockers.SELF_UPGRADING),
            running_units.FACT: running_units.PROBE,
            SETTINGS: "apt-config dump --format '%f %v%n' APT::Periodic",
        },
        constant=frozenset({KERNEL, LOADED}),
    ),
)


@dataclass(frozen=True)
class DriverFacts:
    """Driver facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack
    driver: DriverOptions

    @cached_property
    def packages(self) -> list[desired.NodePackage]:
        """All relevant packages."""
        return desired.packages(self.reading.text(PACKAGES))

    @cached_property
    def words(self) -> list[str]:
        """The packages to install, as words for apt."""
        return desired.apt_arguments(self.packages, self.driver)

    @cached_property
    def interrupted(self) -> bool:
        """Whether dpkg was interrupted, for any package."""
        return bool(self.reading.text(INTERRUPTED).strip())

    @cached_property
    def conf(self) -> bytes | None:
        """The actual drop-in of apt."""
        return self.reading.content(upgrade_blockers.CONF)

    @cached_property
    def open(self) -> list[upgrade_blockers.UpgradeUnit]:
        """Units that still could upgrade the node."""
        return upgrade_blockers.to_mask(self.reading.text(UNITS))

    @cached_property
    def obstacles(self) -> list[str]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported
        before a change.
        """
        settings = upgrade_blockers.overridden(self.reading.text(SETTINGS))
        _ = (self.words, self.interrupted, self.open, self.reboot, self.unit_blockers)
        return [
            *desired.blockers(self.packages, self.driver),
            *(settings if self.conf == upgrade_blockers.conf(self.rack) else []),
        ]

    @cached_property
    def unit_blockers(self) -> list[str]:
        """Why packages must not be installed now: a rank has the libraries of the driver open."""
        units = running_units.parse_running_units(self.reading.text(running_units.FACT))
        if not self.words and not self.interrupted:
            return []
        change = "packages of the driver must be installed" if self.words else "packages must be configured (dpkg)"
        return running_units.unit_blockers(self.rack, units, change)

    @cached_property
    def reboot(self) -> list[str]:
        """Reasons for a reboot of the node."""
        kernel, loaded = self.reading.text(KERNEL).strip(), self.reading.text(LOADED)
        if not kernel:
            raise ValueError(f"{KERNEL}: is empty")
        asked = self.reading.content(reboot_reasons.ASKED) is not None
        asking = (self.reading.content(reboot_reasons.ASKING) or b"").decode("utf-8", "backslashreplace")
        return reboot_reasons.reasons(self.driver, self.packages, kernel, loaded, asked, asking)
