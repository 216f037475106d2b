"""Whether this is the switch the rack file means, and one this project may change. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .cages import lanes_of
from .diff import Change
from .errors import UnreadableError
from .menus import BRIDGE, BRIDGE_PORT, DEVICE_MODE, ETHERNET, OLDEST, PACKAGE, RESOURCE, ROUTERBOARD, Row
from .reading import Reading
from .releases import release
from .values import Kind, canonical

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


def hindrances(changes: tuple[Change, ...], reading: Reading) -> Iterator[str]:
    """Why these changes could not be written, or not be taken back by the device itself."""
    yield from too_new(changes, reading)
    yield from bridge_mtu(changes, reading)
    if changes:
        yield from device_mode(reading)


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


def bridge_mtu(changes: Iterable[Change], reading: Reading) -> Iterator[str]:
    """Changes of a bridge that RouterOS would refuse: at every one it compares the bridge's own mtu, if it has one,
    with the smallest l2mtu of its ports ("could not set mtu", reported from a CRS804 and a CRS812)."""
    changes = tuple(changes)
    sizes = {row["name"]: row.get("l2mtu", "") for row in reading.ethernet.values()}
    members = [(row.get("bridge", ""), row.get("interface", "")) for row in reading.rows(BRIDGE_PORT)]
    for change in changes:
        values = {name: str(value) for name, value in change.values}
        if change.menu is ETHERNET and "l2mtu" in values:
            sizes[reading.ethernet[change.row]["name"]] = values["l2mtu"]
        elif change.menu is BRIDGE_PORT and "bridge" in values:
            members.append((values["bridge"], change.row))
    bridges = reading.by_key(BRIDGE)
    for name in dict.fromkeys(c.row for c in changes if c.menu is BRIDGE and not c.adds and not c.removes):
        mtu = bridges[(name,)].get("mtu", "auto")
        ports = {
            port: int(sizes[port]) for bridge, port in members if bridge == name and sizes.get(port, "").isdecimal()
        }
        port = min(ports, key=lambda each: ports[each], default=None)
        if mtu.isdecimal() and port is not None and int(mtu) > ports[port]:
            yield (
                f"bridge {name} has mtu {mtu} of its own and its port {port} has l2mtu {ports[port]}: RouterOS refuses "
                f"every change of the bridge then; run /interface/bridge/set {name} mtu=auto, or raise l2mtu of {port}"
            )


def device_mode(reading: Reading) -> Iterator[str]:
    """Why no rollback timer would run on this device (MikroTik manual, 'Device-mode')."""
    for row in reading.tables.get(DEVICE_MODE.path, ()):
        if _flag(row, "flagged", "no"):
            what, word = "the device is flagged, which keeps scheduler and scripts off", "flagged=no"
        elif not _flag(row, "scheduler", "yes"):
            what, word = f"device mode {row.get('mode', '(none)')} keeps the scheduler off", "scheduler=yes"
        else:
            continue
        yield (
            f"{what}, and no rollback timer could run: run /system/device-mode/update {word}, then press the reset or "
            "mode button of the device within 5 minutes"
        )


def _flag(row: Row, name: str, default: str) -> bool:
    try:
        return canonical(Kind.FLAG, row.get(name, default)) == "yes"
    except ValueError as fault:
        raise UnreadableError(f"{DEVICE_MODE.path} {name}: {fault}") from None


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
