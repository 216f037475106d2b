"""Preconditions: this is the declared switch, and a supported one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from core.advisories.advisories import ROUTEROS, current_releases
from core.routeros.diff import RowChange
from core.routeros.errors import UnreadableError
from core.routeros.menus import (
    BONDING,
    BRIDGE,
    BRIDGE_PORT,
    DEVICE_MODE,
    ETHERNET,
    OLDEST,
    PACKAGE,
    RESOURCE,
    ROUTERBOARD,
)
from core.routeros.reading import SwitchReading
from core.routeros.versions import release
from switch.advisories import COMPROMISED, marked_as_compromised
from switch.cages import lanes_of
from switch.flags import read_flag
from switch.port_changes import unlistable_names

if TYPE_CHECKING:
    from core.model import Switch


def blockers(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    """Return every reason not to write to the switch that was read, each with the problem and the required value; () =
    none. For the wrong unit nothing else is checked.
    """
    wrong = wrong_unit(switch, reading)
    if wrong:
        return wrong
    return tuple(
        reason
        for reason in (_check_interfaces(switch, reading), _wrong_bridge(switch, reading), *mlag(reading))
        if reason
    )


def wrong_unit(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    """The reasons that lie in the unit itself: it is another one, or one this project may not change at all."""
    unit = (_check_release(reading), _wrong_driver(switch, reading))
    return (*wrong_device(switch, reading), *(reason for reason in unit if reason))


def wrong_device(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    """The reasons to take the device for another one than rack.yaml means, whatever it runs."""
    return tuple(reason for reason in (_wrong_model(switch, reading), _wrong_serial(switch, reading)) if reason)


def change_blockers(changes: tuple[RowChange, ...], reading: SwitchReading) -> Iterator[str]:
    """Yield why these changes could not be written, or not be rolled back by the device itself."""
    yield from unsupported_fields(changes, reading)
    yield from bridge_mtu(changes, reading)
    yield from unlistable_names(changes, reading)
    if changes:
        yield from device_mode(reading)


def unsupported_fields(changes: Iterable[RowChange], reading: SwitchReading) -> Iterator[str]:
    """The fields of a plan that the release of the switch does not have yet."""
    for change in changes:
        for field in change.fields:
            since = change.menu.fields[field.name].since
            if since > reading.release:
                yield (
                    f"{field.name} of {change.menu.path} came with RouterOS {since[0]}.{since[1]}; the device runs "
                    f"{reading.release[0]}.{reading.release[1]}"
                )


# claim: switch.bridge.mtu
def bridge_mtu(changes: Iterable[RowChange], reading: SwitchReading) -> Iterator[str]:
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


# claim: switch.device-mode
def device_mode(reading: SwitchReading) -> Iterator[str]:
    """Yield why no rollback timer would run on this device. Each device has a mode and prints it, possibly without
    further fields (MikroTik manual, 'Device-mode'). Raises UnreadableError when it prints none.
    """
    row = reading.only(DEVICE_MODE)
    if "mode" not in row:
        raise UnreadableError(f"{DEVICE_MODE.path} has no mode")
    if marked_as_compromised((row,)):  # it adds no schedule then
        yield COMPROMISED
    elif not read_flag(DEVICE_MODE, row, "scheduler", "no" if row["mode"] == "home" else "yes"):
        yield (
            f"device mode {row['mode']} keeps the scheduler off, and no rollback timer could run: run "
            "/system/device-mode/update scheduler=yes, then press the reset or mode button of the device within 5 "
            "minutes"
        )


def _wrong_model(switch: Switch, reading: SwitchReading) -> str | None:
    says = [text for text in (reading.only(ROUTERBOARD).get("model"), reading.only(RESOURCE).get("board-name")) if text]
    if not says:
        return f"the device does not report its model; {switch.hardware.board} is declared"
    if any(map(switch.hardware.is_board, says)):
        return None
    return f"the device is a {says[0]}; the rack file means a {switch.hardware.board}"


def _wrong_serial(switch: Switch, reading: SwitchReading) -> str | None:
    found = reading.only(ROUTERBOARD).get("serial-number")
    if switch.serial is None or found == switch.serial:
        return None
    return f"the device has serial number {found or '(none)'}; the rack file means {switch.serial}"


def _check_release(reading: SwitchReading) -> str | None:
    text = reading.only(RESOURCE).get("version", "")
    found = release(text)
    if found is None:
        return f"the device reports RouterOS {text!r}, which is not a version"
    if found < OLDEST:
        needed = (
            f"at least {OLDEST[0]}.{OLDEST[1]} is needed, take {current_releases(ROUTEROS)}: sparkrack upgrade switch "
            "--packages FOLDER"
        )
        return f"the device runs RouterOS {text}; {needed}"
    return None


def _wrong_driver(switch: Switch, reading: SwitchReading) -> str | None:
    driver = switch.hardware.driver_package
    row = reading.by_key(PACKAGE).get((driver,))
    # From 7.18 on RouterOS also lists packages that can be downloaded (MikroTik manual, 'Packages').
    if row is None or row.get("available", "no") not in ("no", "false"):
        return f"package {driver} is not installed; without it the cages do not work"
    if row.get("disabled", "no") not in ("no", "false"):
        return f"package {driver} is disabled; without it the cages do not work"
    return None


def _check_interfaces(switch: Switch, reading: SwitchReading) -> str | None:
    missing = [name for cage in switch.cages for name in lanes_of(cage) if name not in reading.ethernet]
    return f"the device has no interface {', '.join(missing)}, of a declared cage" if missing else None


def mlag(reading: SwitchReading) -> Iterator[str]:
    """Yield why a run does not write to a switch that shares its links with a second one (MLAG)."""
    for row in reading.rows(BRIDGE):
        if (peer := row.get("mlag-peer-port", "none")) not in ("", "none"):
            yield (
                f"bridge {row.get('name')} has the MLAG peer port {peer}: two switches act as one, which rack.yaml "
                "cannot declare, so a run here could cut the other off; configure both by hand"
            )
    for row in reading.by_key(BONDING).values():
        if row.get("mlag-id"):
            yield (
                f"bond {row.get('name')} has mlag-id {row['mlag-id']}: it is shared with a second switch (MLAG), which "
                "rack.yaml cannot declare; configure both by hand"
            )


def _wrong_bridge(switch: Switch, reading: SwitchReading) -> str | None:
    """Require a single bridge: one is created if there is none; a second one would not be forwarded by the chip."""
    there = sorted(name for (name,) in reading.by_key(BRIDGE))
    if not switch.cages or not there or switch.bridge in there:
        return None
    return (
        f"the device has no bridge {switch.bridge}; its bridges: {', '.join(there)}, and the chip forwards for one "
        "only: declare that one"
    )
