"""Whether this is the switch the rack file means, and one this project may change. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .cages import lanes_of
from .menus import OLDEST, Release
from .reading import Reading

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

DRIVER = "switch-marvell"
"""The package that drives the switch chip (MikroTik manual, 'Packages'); without it the cages do nothing
(inferred)."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?((?:alpha|beta|rc)\d*)?(?:[ _(].*)?")

# The rack-mount kit is part of the article's name and, on other models of this maker, not of what the board
# says of itself (inferred): the same switch is CRS812-8DS-2DQ-2DDQ and CRS812-8DS-2DQ-2DDQ-RM.
_MOUNT = re.compile(r"-?(?:RM|IN)$")


def refusals(switch: Switch, reading: Reading) -> tuple[str, ...]:
    """Every reason not to write to the switch that was read, each what is wrong and what would be right; () =
    none."""
    return tuple(
        reason
        for reason in (
            _model(switch, reading),
            _serial(switch, reading),
            _release(reading),
            _driver(reading),
            _interfaces(switch, reading),
            _bridge(switch, reading),
            _lossless(switch),
        )
        if reason
    )


def release(text: str) -> Release | None:
    """ "7.23.7 (long-term)" as (7, 23, 7, 0), "7.24rc4 (testing)" as (7, 24, 0, -1); None for what is no
    version."""
    found = _VERSION.fullmatch(text)
    if not found:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0), -1 if found[4] else 0


def _model(switch: Switch, reading: Reading) -> str | None:
    says = [text for text in (reading.routerboard.get("model"), reading.resource.get("board-name")) if text]
    if not says:
        return f"the device does not tell its model; {switch.model} is declared"
    if _MOUNT.sub("", switch.model) in {_MOUNT.sub("", text) for text in says}:
        return None
    return f"the device is a {says[0]}; the rack file means a {switch.model}"


def _serial(switch: Switch, reading: Reading) -> str | None:
    found = reading.routerboard.get("serial-number")
    if switch.serial is None or found == switch.serial:
        return None
    return f"the device has serial number {found or '(none)'}; the rack file means {switch.serial}"


def _release(reading: Reading) -> str | None:
    text = reading.resource.get("version", "")
    found = release(text)
    if found is None:
        return f"the device says its RouterOS is {text!r}, which is no version"
    if found < OLDEST:
        return f"the device runs RouterOS {text}; at least {OLDEST[0]}.{OLDEST[1]} is needed"
    return None


def _driver(reading: Reading) -> str | None:
    row = reading.packages.get(DRIVER)
    if row is None:
        return f"package {DRIVER} is not installed; without it the cages do not work"
    if row.get("disabled", "no") not in ("no", "false"):
        return f"package {DRIVER} is disabled; without it the cages do not work"
    return None


def _interfaces(switch: Switch, reading: Reading) -> str | None:
    missing = [name for cage in switch.cages for name in lanes_of(cage) if name not in reading.ethernet]
    return f"the device has no interface {', '.join(missing)}, of a declared cage" if missing else None


def _bridge(switch: Switch, reading: Reading) -> str | None:
    if not switch.cages or switch.bridge in reading.bridges:
        return None
    there = ", ".join(sorted(reading.bridges)) or "none"
    return f"the device has no bridge {switch.bridge}; its bridges: {there}"


def _lossless(switch: Switch) -> str | None:
    if switch.lossless == "none":
        return None
    # Half a lossless set-up drops packets under load and looks right, so it is refused rather than left out.
    return f"lossless: {switch.lossless} cannot be brought about by this version; declare lossless: none"
