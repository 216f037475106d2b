"""What a node says of its driver, kernel and ways to upgrade itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roles.driver import closed, reboot, state
from sparkrack.fleet import Driver, Rack
from sparkrack.ops import apt, probe, unitfiles

PACKAGES = "driver-packages"
INTERRUPTED = "driver-dpkg-interrupted"
KERNEL = "driver-kernel"
LOADED = "driver-loaded"
UNITS = "driver-update-units"
SETTINGS = "driver-apt-settings"

probe.register(
    "driver",
    probe.Probe(
        files=(closed.CONF, reboot.ASKED, reboot.ASKING),
        commands={
            PACKAGES: state.listed(),
            INTERRUPTED: apt.INTERRUPTED,
            KERNEL: "uname -r",
            # nvidia-smi says the same in ten times the time. One that cannot reach the driver is an answer: none.
            LOADED: "if [ -r /sys/module/nvidia/version ]; then cat /sys/module/nvidia/version; "
            "elif command -v nvidia-smi > /dev/null; then "
            'o=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader) && echo "$o" || true; fi',
            UNITS: unitfiles.listed(closed.SELF_UPGRADING),
            SETTINGS: "apt-config dump --format '%f %v%n' APT::Periodic",
        },
        lasting=frozenset({KERNEL, LOADED}),
    ),
)


@dataclass(frozen=True)
class View:
    """The driver of a node as it was read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    driver: Driver
    reading: probe.Reading

    @cached_property
    def packages(self) -> list[state.Package]:
        """All packages that matter."""
        return state.packages(self.reading.text(PACKAGES))

    @cached_property
    def words(self) -> list[str]:
        """What is to be installed."""
        return state.words(self.packages, self.driver)

    @cached_property
    def interrupted(self) -> bool:
        """Whether dpkg was ended in the middle of something, of whatever package."""
        return bool(self.reading.text(INTERRUPTED).strip())

    @cached_property
    def conf(self) -> bytes | None:
        """Our drop-in of apt, as it is."""
        return self.reading.content(closed.CONF)

    @cached_property
    def open(self) -> list[closed.Unit]:
        """Units that still could upgrade the node."""
        return closed.to_mask(self.reading.text(UNITS))

    @cached_property
    def obstacles(self) -> list[str]:
        """Why the role may not touch this node. Looks at everything, so that what is unknown shows before a change."""
        settings = closed.overridden(self.reading.text(SETTINGS))
        _ = (self.words, self.interrupted, self.open, self.reboot)
        return [
            *state.obstacles(self.packages, self.driver),
            *(settings if self.conf == closed.conf(self.rack) else []),
        ]

    @cached_property
    def reboot(self) -> list[str]:
        """Why the node should be rebooted."""
        kernel, loaded = self.reading.text(KERNEL).strip(), self.reading.text(LOADED)
        if not kernel:
            raise ValueError(f"{KERNEL}: is empty")
        asked = self.reading.content(reboot.ASKED) is not None
        asking = (self.reading.content(reboot.ASKING) or b"").decode("utf-8", "backslashreplace")
        return reboot.reasons(self.driver, self.packages, kernel, loaded, asked, asking)
