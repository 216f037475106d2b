"""The ways by which a node upgrades itself, and what closes them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.model import Rack
from core.util.managed_file import header

CONF = "/etc/apt/apt.conf.d/99-sparkrack-no-upgrades"
UNITS = "/etc/systemd/system"

PERIODIC = (
    "APT::Periodic::Enable",
    "APT::Periodic::Update-Package-Lists",
    "APT::Periodic::Download-Upgradeable-Packages",
    "APT::Periodic::Unattended-Upgrade",
    "APT::Periodic::AutocleanInterval",
)
"""Settings that disable apt's own timers. The timers are masked as well; a timer that is unmasked later still does
nothing.
"""

NEVER = ("nvidia-", "libnvidia-", "linux-", "docker", "containerd", "dgx-")
"""Packages that unattended-upgrades skips even if it is started: expressions for the beginning of a name."""

SELF_UPGRADING = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service", "packagekit*.service"),
    # claim: driver.upgrade-units
    *("nvidia-spark-run-apt-upgrade-once.service", "nvidia-spark-ota-check.service", "nvidia-spark-ota-check.timer"),
    *("dgx*ota*.service", "dgx*ota*.timer", "fwupd-refresh.timer"),
)
"""Units that upgrade packages, or offer to, automatically: those of Ubuntu, then those of DGX OS."""


@dataclass(frozen=True)
class UpgradeUnit:
    """A unit on a node: its name, whether it is masked, and what stands in the place of the mask, if anything does."""

    name: str
    masked: bool
    instead: str | None = None


def conf(rack: Rack) -> bytes:
    """Return the drop-in of apt."""
    lines = [header(rack.rack, "//")]
    lines += [f'{key} "0";' for key in PERIODIC]
    lines += ["Unattended-Upgrade::Package-Blacklist {", *(f'  "{name}";' for name in NEVER), "};"]
    return ("\n".join(lines) + "\n").encode()


def overridden(settings: str) -> list[str]:
    """Return settings of apt that differ although the drop-in is in place, from lines `key value` of its whole
    configuration.
    """
    reported = [line.partition(" ")[::2] for line in settings.splitlines()]
    unreported = [key for key in PERIODIC if key not in dict(reported)]
    return [
        f"{key} is {value!r} for apt, though {CONF} says 0: a file that it reads later sets it; find it with "
        "grep -ri periodic /etc/apt/apt.conf /etc/apt/apt.conf.d and remove that line"
        for key, value in reported
        if key in PERIODIC and value != "0"
    ] + [f"apt does not say what {key} is, though {CONF} says 0: it does not read that file" for key in unreported]


def units(listing: str) -> list[UpgradeUnit]:
    """The units in lines `path target`; the target is empty for a plain file. Raises ValueError for other lines."""
    found: dict[str, UpgradeUnit] = {}
    for line in listing.splitlines():
        path, space, target = line.partition(" ")
        folder, _, name = path.rpartition("/")
        if not space or not folder or not name:
            raise ValueError(f"update-units: unexpected probe output {line!r}")
        here = folder == UNITS
        if name not in found or here:
            masked = here and target == "/dev/null"
            found[name] = UpgradeUnit(name, masked, path if here and not masked else None)
    return sorted(found.values(), key=lambda unit: unit.name)


def to_mask(listing: str) -> list[UpgradeUnit]:
    """Return the units that could still upgrade the node."""
    return [unit for unit in units(listing) if not unit.masked]
