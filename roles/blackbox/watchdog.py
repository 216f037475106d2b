"""The hardware watchdog that systemd feeds: which device of the node, its drop-in and its live state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.model import Rack
from core.model.fields import seconds
from core.util.event import Event, value_change
from core.util.managed_file import ManagedFile, header
from roles.blackbox.options import BlackboxOptions

DROPIN = "/etc/systemd/system.conf.d/zz-sparkrack-watchdog.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
SYSFS = "/sys/class/watchdog"
SBSA = "SBSA Generic Watchdog"
"""What the driver of the GB10's watchdog calls itself (sbsa_gwdt)."""
REBOOT_SECONDS = 600
"""Seconds that a shutdown may take; an update of the firmware runs after it."""
RACE_FREE_TIMEOUT = 3
"""Seconds. The driver that feeds a MediaTek watchdog outside of its race has this minimum (kernel 48defdf6b083)."""
_UNITS = {"h": 3600, "min": 60, "s": 1, "ms": 0.001}


@dataclass(frozen=True)
class WatchdogDevice:
    """One watchdog: what its driver calls it, whether a program feeds it, its timeout and the range of that, in s."""

    name: str
    identity: str
    active: bool
    timeout: int
    smallest: int
    largest: int

    @property
    def path(self) -> str:
        """Its device file."""
        return f"/dev/{self.name}"


@dataclass(frozen=True)
class ManagerWatchdog:
    """Settings of the running systemd, in seconds: 0 is off, None is what the firmware or the kernel has."""

    runtime: float | None
    reboot: float | None


def devices(live: Mapping[tuple[str, str], str]) -> list[WatchdogDevice]:
    """Return the node's watchdogs. Raises ValueError for one whose driver says nothing of itself."""
    names = sorted({subject for subject, _ in live if re.fullmatch(r"watchdog[0-9]+", subject)})
    return [_device(name, live) for name in names]


def _device(name: str, live: Mapping[tuple[str, str], str]) -> WatchdogDevice:
    identity, state = (live.get((name, field), "absent") for field in ("identity", "state"))
    numbers = [live.get((name, field), "absent") for field in ("timeout", "min_timeout", "max_timeout")]
    if identity in ("", "absent"):
        raise ValueError(f"{name}: identity is unknown; the kernel shows none (CONFIG_WATCHDOG_SYSFS)")
    if state not in ("active", "inactive") or not all(re.fullmatch("[0-9]{1,10}", number) for number in numbers):
        raise ValueError(f"{name}: unexpected probe output {' '.join((state, *numbers))[:80]!r}")
    return WatchdogDevice(name, identity, state == "active", *map(int, numbers))


def chosen(found: list[WatchdogDevice]) -> WatchdogDevice | None:
    """Return the watchdog to feed: that of the GB10, else the only one; None without a choice."""
    sbsa = [device for device in found if device.identity == SBSA]
    return sbsa[0] if sbsa else found[0] if len(found) == 1 else None


def manager(answer: str) -> ManagerWatchdog:
    """Parse what `systemctl show` prints of systemd itself. Raises ValueError for anything else."""
    values = dict(line.partition("=")[::2] for line in answer.splitlines())
    return ManagerWatchdog(*(_span(key, values.get(key, "")) for key in ("RuntimeWatchdogUSec", "RebootWatchdogUSec")))


def _span(key: str, text: str) -> float | None:
    """Convert a time span as systemd writes it, like 1min 30s, to seconds."""
    if text in ("infinity", "[not set]"):
        return None
    if text == "0":
        return 0
    if not re.fullmatch(r"([0-9]+(h|min|s|ms) ?)+", text):
        raise ValueError(f"{key}: unexpected probe output {text[:40]!r}")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)(min|ms|h|s)", text))


# claim: blackbox.watchdog
def blockers(found: list[WatchdogDevice], now: ManagerWatchdog, action: str, limit: int) -> tuple[str, ...]:
    """Why systemd may not feed a watchdog of this node. `action`: the parameter of sbsa_gwdt. `limit`: in seconds."""
    off = "or set blackbox.watchdog: false in rack.yaml"
    device = chosen(found)
    if not found:
        return (f"this node has no watchdog ({SYSFS} is empty); load its driver, {off}",)
    if device is None:
        names = ", ".join(f"{device.path} ({device.identity})" for device in found)
        return (f"this node has {len(found)} watchdogs and none is the {SBSA}: {names}; unload the others, {off}",)
    lines = []
    if not device.smallest <= limit <= (device.largest or limit):
        lines.append(
            f"{device.path} takes {device.smallest} to {device.largest} s, and rack.yaml declares {limit} s; change "
            "blackbox.watchdog"
        )
    if device.identity == SBSA:
        if action not in ("0", "1"):
            raise ValueError(f"action of sbsa_gwdt: unexpected probe output {action[:40]!r}")
        if action == "0" and device.smallest < RACE_FREE_TIMEOUT:
            lines.append(
                f"this kernel's driver of {device.path} can reset a node that feeds it (it lacks the correction "
                f"48defdf6b083 of sbsa_gwdt); use a newer kernel, {off}"
            )
    if device.active and now.runtime == 0:
        lines.append(f"{device.path} is fed by another program; remove that (`apt remove watchdog`), {off}")
    return tuple(lines)


def settings(rack: Rack, device: WatchdogDevice) -> dict[str, str]:
    """Return the settings of systemd by key."""
    return {
        "RuntimeWatchdogSec": f"{limit(rack)}s",
        "RebootWatchdogSec": f"{REBOOT_SECONDS}s",
        "WatchdogDevice": device.path,
    }


def limit(rack: Rack) -> int:
    """Return the declared limit in seconds; 0 where the watchdog is left alone."""
    declared = rack.options(BlackboxOptions).watchdog
    return seconds(declared) if declared else 0


def file(rack: Rack, device: WatchdogDevice) -> ManagedFile:
    """Return the drop-in of systemd."""
    lines = [header(rack.rack), "[Manager]", *(f"{key}={value}" for key, value in settings(rack, device).items())]
    return ManagedFile(DROPIN, ("\n".join(lines) + "\n").encode())


def differences(rack: Rack, device: WatchdogDevice, now: ManagerWatchdog) -> list[Event]:
    """Return what of the running systemd and of the device differs."""
    wanted = limit(rack)
    events = []
    for name, old, new in (
        ("RuntimeWatchdogSec", now.runtime, wanted),
        ("RebootWatchdogSec", now.reboot, REBOOT_SECONDS),
    ):
        if old != new:
            shown = "default" if old is None else f"{old:g} s"
            events.append(value_change(name, shown, f"{new} s", "systemd is executed again"))
    if not device.active:
        events.append(value_change(device.path, "inactive", "active"))
    elif device.timeout != wanted:
        events.append(value_change(f"timeout of {device.path}", f"{device.timeout} s", f"{wanted} s"))
    return events
