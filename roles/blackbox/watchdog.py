"""The hardware watchdog that systemd feeds: which device of the node, its drop-in and its live state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.model import Rack
from core.model.fields import seconds
from core.util.event import Event, value_change
from core.util.managed_file import ManagedFile
from roles.blackbox import boot_parameters
from roles.blackbox.boot_parameters import Live, answer
from roles.blackbox.desired import settings_file
from roles.blackbox.options import BlackboxOptions

DROPIN = "/etc/systemd/system.conf.d/zz-sparkrack-watchdog.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
SYSFS = "/sys/class/watchdog"
MODPROBE = "/etc/modprobe.d/zz-sparkrack-watchdog.conf"
FRAGMENT = f"{boot_parameters.FOLDER}/zz-sparkrack-watchdog.cfg"
PARAMETER = "sbsa_gwdt.action"
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
    return [_parse_device(name, live) for name in names]


def _parse_device(name: str, live: Mapping[tuple[str, str], str]) -> WatchdogDevice:
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
    return ManagerWatchdog(
        *(_parse_span(key, values.get(key, "")) for key in ("RuntimeWatchdogUSec", "RebootWatchdogUSec"))
    )


def _parse_span(key: str, text: str) -> float | None:
    """Convert a time span as systemd writes it, like 1min 30s, to seconds."""
    if text in ("infinity", "[not set]"):
        return None
    if text == "0":
        return 0
    if not re.fullmatch(r"([0-9]+(h|min|s|ms) ?)+", text):
        raise ValueError(f"{key}: unexpected probe output {text[:40]!r}")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)(min|ms|h|s)", text))


def action(live: Mapping[tuple[str, str], str], device: WatchdogDevice) -> str:
    """Return what the driver does at the first signal of the watchdog: 0 nothing, 1 a panic.

    The driver logs it when it starts. Where that line is gone, one case is certain: it has its larger minimum timeout
    only while the action is 0. Raises ValueError when it is unknown.
    """
    found = live.get(("sbsa_gwdt", "action"), "no answer")
    if found == "unknown" and device.smallest >= RACE_FREE_TIMEOUT:
        return "0"
    if found == "unknown":
        raise ValueError(
            "action of sbsa_gwdt: the kernel's log of this boot no longer has the line of the driver; it has one after "
            "the next boot"
        )
    if found not in ("0", "1"):
        raise ValueError(f"action of sbsa_gwdt: unexpected probe output {found[:40]!r}")
    return found


# claim: blackbox.watchdog
def blockers(
    found: list[WatchdogDevice], now: ManagerWatchdog, live: Mapping[tuple[str, str], str], limit: int
) -> tuple[str, ...]:
    """Why systemd may not feed a watchdog of this node. `limit`: in seconds."""
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
    if device.identity == SBSA and action(live, device) == "0" and device.smallest < RACE_FREE_TIMEOUT:
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
    return settings_file(
        DROPIN, rack, "[Manager]", *(f"{key}={value}" for key, value in settings(rack, device).items())
    )


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


@dataclass(frozen=True)
class FirstStage:
    """How a panic becomes the first stage of the watchdog on this node, and what is there of it.

    `option`: CONFIG_ARM_SBSA_WATCHDOG of the running kernel. `grub`: what can give it a parameter.
    `following`: the action that the next boot has; empty while nothing sets one. `present`: the action of this boot;
    empty where the device has none.
    """

    device: WatchdogDevice
    option: str
    grub: boot_parameters.Grub
    following: str
    present: str

    @property
    def path(self) -> str:
        """The file that sets the action; empty where nothing can."""
        if self.device.identity != SBSA:
            return ""
        return {"m": MODPROBE, "y": FRAGMENT}.get(self.option, "")

    @property
    def no_effect(self) -> str:
        """Why nothing can set it; empty where it can be set."""
        if self.device.identity != SBSA:
            why = f"{self.device.path} is {self.device.identity}, and only the {SBSA} panics first"
        elif not self.path:
            why = "this kernel has no CONFIG_ARM_SBSA_WATCHDOG"
        else:
            return ""
        return f"blackbox.watchdog_panics has no effect here: {why}"

    @property
    def reboot(self) -> tuple[str, ...]:
        """What takes effect at the next boot only: the driver takes its action when it starts."""
        following = self.following or "0"
        if not self.path or following == self.present or self.broken:
            return ()
        return (f"sbsa_gwdt has action={self.present} until the next boot, and action={following} from then on",)

    @property
    def broken(self) -> tuple[str, ...]:
        """What a reboot did not bring."""
        if self.path != FRAGMENT or not self.following or self.following == self.present or not self.grub.older:
            return ()
        return (boot_parameters.passed_over(f"{PARAMETER}={self.following}"),)


def first_stage(device: WatchdogDevice, live: Mapping[tuple[str, str], str], kernel: Live) -> FirstStage:
    """Return it from the state of the node and of its kernel. Raises ValueError when a part is unknown."""
    if device.identity != SBSA:
        return FirstStage(device, "absent", grub=boot_parameters.grub(kernel), following="", present="")
    option = boot_parameters.kernel_option(kernel, "sbsa_gwdt")
    subject, name = ("modprobe", "action") if option == "m" else ("grub", "watchdog")
    why = "is kmod installed?" if option == "m" else ""
    following = answer(kernel, subject, name, "[0-9]{1,9}|absent", why)
    return FirstStage(
        device,
        option,
        grub=boot_parameters.grub(kernel),
        following="" if following == "absent" else following,
        present=action(live, device),
    )


def panics(rack: Rack) -> bool:
    """Return whether rack.yaml declares a watchdog that panics first."""
    return bool(limit(rack)) and rack.options(BlackboxOptions).watchdog_panics


# claim: blackbox.watchdog-panics
def first_stage_file(rack: Rack, stage: FirstStage) -> ManagedFile | None:
    """Return the file that makes a panic the first stage; None where nothing can, or rack.yaml does not declare it."""
    if not panics(rack) or not stage.path:
        return None
    if stage.path == FRAGMENT:
        return boot_parameters.fragment(rack, FRAGMENT, f"{PARAMETER}=1")
    return settings_file(MODPROBE, rack, "options sbsa_gwdt action=1")


def first_stage_blockers(rack: Rack, stage: FirstStage, *, written: bool) -> tuple[str, ...]:
    """Why the declared first stage cannot be set. `written`: the file is there as it must be."""
    off = "or set blackbox.watchdog_panics: false in rack.yaml"
    if not panics(rack) or not stage.path:
        return ()
    if stage.path == FRAGMENT and stage.grub.missing:
        why = f"sbsa_gwdt is built into this kernel, and only GRUB could give it {PARAMETER}=1: {stage.grub.missing}"
        return (f"{why}; {off}",)
    if stage.path == MODPROBE and written and stage.following != "1":
        found = f"`modprobe --showconfig` has action={stage.following or 'none'}"
        why = "a file that is read later, or the command line of the kernel, wins"
        return (f"{MODPROBE} sets action=1 of sbsa_gwdt, and {found}: {why}; remove that, {off}",)
    return ()


def check_modprobe() -> str:
    """Return shell text that fails unless the module gets action=1 when it is loaded."""
    wrong = "modprobe does not give sbsa_gwdt action=1: a file that is read later, or the command line, wins"
    return (
        "modprobe --showconfig | sed -n 's/^options sbsa_gwdt //p' | tr -s ' \\t' '\\n' | "
        "grep '^action=' | tail -n 1 | "
        f"grep -qx action=1 || {{ echo '{wrong}' >&2; exit 1; }}"
    )
