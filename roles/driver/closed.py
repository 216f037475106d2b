"""The ways by which a node upgrades itself, and what closes them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrack.fleet import Rack

CONF = "/etc/apt/apt.conf.d/99-sparkrack-no-upgrades"
UNITS = "/etc/systemd/system"

PERIODIC = (
    "APT::Periodic::Enable",
    "APT::Periodic::Update-Package-Lists",
    "APT::Periodic::Download-Upgradeable-Packages",
    "APT::Periodic::Unattended-Upgrade",
    "APT::Periodic::AutocleanInterval",
)
"""What apt's own timers do. They are masked as well; a timer unmasked by hand still does nothing."""

NEVER = ("nvidia-", "libnvidia-", "linux-", "docker", "containerd", "dgx-")
"""What unattended-upgrades leaves alone even if somebody starts it: expressions for the beginning of a name."""

SELF_UPGRADING = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service", "packagekit*.service"),
    *("nvidia-spark-run-apt-upgrade-once.service", "nvidia-spark-ota-check.service", "nvidia-spark-ota-check.timer"),
    *("dgx*ota*.service", "dgx*ota*.timer", "fwupd-refresh.timer"),
)
"""Units that upgrade packages, or offer to, with nobody asking: those of Ubuntu, then those of DGX OS."""


@dataclass(frozen=True)
class Unit:
    """A unit on a node: its name, whether it is masked, and what stands in the place of the mask, if anything does."""

    name: str
    masked: bool
    instead: str | None = None


def conf(rack: Rack) -> bytes:
    """The drop-in of apt."""
    lines = [f"// Written by sparkrack for the rack {rack.rack}; a change here is overwritten."]
    lines += [f'{key} "0";' for key in PERIODIC]
    lines += ["Unattended-Upgrade::Package-Blacklist {", *(f'  "{name}";' for name in NEVER), "};"]
    return ("\n".join(lines) + "\n").encode()


def overridden(settings: str) -> list[str]:
    """What apt takes otherwise though the drop-in is in place, from lines `key value` of its whole configuration."""
    said = [line.partition(" ")[::2] for line in settings.splitlines()]
    unsaid = [key for key in PERIODIC if key not in dict(said)]
    return [
        f"{key} is {value!r} for apt, though {CONF} says 0: a file that it reads later sets it; find it with "
        "grep -ri periodic /etc/apt/apt.conf /etc/apt/apt.conf.d and remove that line"
        for key, value in said
        if key in PERIODIC and value != "0"
    ] + [f"apt does not say what {key} is, though {CONF} says 0: it does not read that file" for key in unsaid]


def units(listing: str) -> list[Unit]:
    """The units in lines `path target`; the target is empty for a plain file. Raises ValueError for other lines."""
    found: dict[str, Unit] = {}
    for line in listing.splitlines():
        path, space, target = line.partition(" ")
        folder, _, name = path.rpartition("/")
        if not space or not folder or not name:
            raise ValueError(f"update-units: cannot be told from {line!r}")
        here = folder == UNITS
        if name not in found or here:
            masked = here and target == "/dev/null"
            found[name] = Unit(name, masked, path if here and not masked else None)
    return sorted(found.values(), key=lambda unit: unit.name)


def to_mask(listing: str) -> list[Unit]:
    """Those that still could upgrade the node."""
    return [unit for unit in units(listing) if not unit.masked]
