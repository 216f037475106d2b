"""Whether this is the switch the rack file means, and one this project may change. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .cages import lanes_of
from .diff import Change
from .menus import BRIDGE, OLDEST, PACKAGE, RESOURCE, ROUTERBOARD
from .reading import Reading
from .releases import release

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

DRIVER = "switch-marvell"
"""The package that drives the switch chip (MikroTik manual, 'Packages'); without it the cages do nothing
(inferred)."""

# The rack-mount kit is part of the article's name and, on other models of this maker, not of what the board
# says of itself (inferred): the same switch is CRS812-8DS-2DQ-2DDQ and CRS812-8DS-2DQ-2DDQ-RM.
_MOUNT = re.compile(r"-?(?:RM|IN)$")


def refusals(switch: Switch, reading: Reading) -> tuple[str, ...]:
    """Every reason not to write to the switch that was read, each what is wrong and what would be right; () =
    none. When it is the wrong unit already, nothing else of it is judged."""
    wrong = wrong_unit(switch, reading)
    if wrong:
        return wrong
    return tuple(reason for reason in (_interfaces(switch, reading), _bridge(switch, reading)) if reason)


def wrong_unit(switch: Switch, reading: Reading) -> tuple[str, ...]:
    """The reasons that lie in the unit itself: it is another one, or one this project may not change at all."""
    unit = (_model(switch, reading), _serial(switch, reading), _release(reading), _driver(reading))
    return tuple(reason for reason in unit if reason)


def too_new(changes: Iterable[Change], reading: Reading) -> Iterator[str]:
    """The fields of a plan that the release of the switch does not have yet."""
    for change in changes:
        for field in change.fields:
            since = change.menu.fields[field.name].since
            if since > reading.release:
                yield (
                    f"{field.name} of {change.menu.path} came with RouterOS {since[0]}.{since[1]}; the device runs "
                    f"{reading.release[0]}.{reading.release[1]}"
                )


def _model(switch: Switch, reading: Reading) -> str | None:
    says = [text for text in (reading.only(ROUTERBOARD).get("model"), reading.only(RESOURCE).get("board-name")) if text]
    if not says:
        return f"the device does not tell its model; {switch.model} is declared"
    if _MOUNT.sub("", switch.model) in {_MOUNT.sub("", text) for text in says}:
        return None
    return f"the device is a {says[0]}; the rack file means a {switch.model}"


def _serial(switch: Switch, reading: Reading) -> str | None:
    found = reading.only(ROUTERBOARD).get("serial-number")
    if switch.serial is None or found == switch.serial:
        return None
    return f"the device has serial number {found or '(none)'}; the rack file means {switch.serial}"


def _release(reading: Reading) -> str | None:
    text = reading.only(RESOURCE).get("version", "")
    found = release(text)
    if found is None:
        return f"the device says its RouterOS is {text!r}, which is no version"
    if found < OLDEST:
        return f"the device runs RouterOS {text}; at least {OLDEST[0]}.{OLDEST[1]} is needed"
    return None


def _driver(reading: Reading) -> str | None:
    row = reading.by_key(PACKAGE).get((DRIVER,))
    if row is None:
        return f"package {DRIVER} is not installed; without it the cages do not work"
    if row.get("disabled", "no") not in ("no", "false"):
        return f"package {DRIVER} is disabled; without it the cages do not work"
    return None


def _interfaces(switch: Switch, reading: Reading) -> str | None:
    missing = [name for cage in switch.cages for name in lanes_of(cage) if name not in reading.ethernet]
    return f"the device has no interface {', '.join(missing)}, of a declared cage" if missing else None


def _bridge(switch: Switch, reading: Reading) -> str | None:
    """A bridge is made where there is none; a second one would not be carried by the chip."""
    there = sorted(name for (name,) in reading.by_key(BRIDGE))
    if not switch.cages or not there or switch.bridge in there:
        return None
    return (
        f"the device has no bridge {switch.bridge}; its bridges: {', '.join(there)}, and the chip forwards for one "
        "only: declare that one"
    )
