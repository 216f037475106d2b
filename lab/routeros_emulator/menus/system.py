"""/system: what the unit is. Hardware figures: MikroTik's product data, alike for CRS812 and CRS804."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lab.routeros_emulator import software
from lab.routeros_emulator.argument_types import Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import unknown_parameter
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, Values
from lab.routeros_emulator.request import Call, Reply

_GIB = 1024**3


def _factory_identity(device: EmulatedDevice) -> Iterator[Values]:
    yield {"name": device.config.identity}


def _list_resource(device: EmulatedDevice) -> Iterator[Values]:
    yield {
        "uptime": device.clock.uptime(),
        "version": device.config.version,
        "build-time": "2026-08-12 09:14:02",
        "factory-software": "7.19.1",
        "free-memory": str(3 * _GIB),
        "total-memory": str(4 * _GIB),
        "cpu": "ARM64",
        "cpu-count": "4",
        "cpu-frequency": "2000",
        "cpu-load": "3",
        "free-hdd-space": str(device.free_space()),
        "total-hdd-space": str(_GIB // 2),
        "architecture-name": software.ARCHITECTURE,
        "board-name": device.config.model,
        "platform": "MikroTik",
    }


def _list_routerboard(device: EmulatedDevice) -> Iterator[Values]:
    upgrade = device.config.version.split()[0]
    yield {
        "routerboard": "true",
        "board-name": device.config.model,
        "model": device.config.model,
        "serial-number": device.config.serial,
        "firmware-type": "al64",
        "factory-firmware": "7.19.1",
        "current-firmware": device.config.firmware or upgrade,
        "upgrade-firmware": upgrade,
    }


def _list_packages(device: EmulatedDevice) -> Iterator[Values]:
    yield from software.rows(device.software)


def _list_health(device: EmulatedDevice) -> Iterator[Values]:
    """A unit at rest: one row a sensor, as published prints of CRS units show them; the figures are made up. A test may
    give a sensor another value, or none.
    """
    sensors = [("cpu-temperature", "47", "C"), ("switch-temperature", "52", "C")]
    sensors += [(f"fan{number}-speed", "4380", "RPM") for number in range(1, device.hardware.fans + 1)]
    sensors += [("psu1-state", "ok", ""), ("psu2-state", "ok", "")]
    for number, (name, value, unit) in enumerate(sensors, start=1):
        shown = device.sensors.get(name, value)
        if shown:
            yield {".id": f"*{number:X}", "name": name, "value": shown, "type": unit}


def _device_mode(device: EmulatedDevice) -> Iterator[Values]:
    """Names and order of a published print of 7.19; a few of the permissions."""
    mode = device.config.device_mode
    yield {
        "mode": mode,
        "allowed-versions": "7.13+,6.49.8+",
        "flagged": "true" if device.config.flagged else "false",
        "flagging-enabled": "true",
        "scheduler": "false" if mode == "home" else "true",
        "fetch": "false" if mode == "home" else "true",
        "routerboard": "false",
        "attempt-count": "0",
    }


def _restart_unit(verb: str, call: Call) -> Reply:
    """Restart the unit. A console asks first; that the API does not is inferred."""
    for name in call.sentence.attributes:
        raise unknown_parameter(name)
    call.device.restart(installs=call.device.config.installs_on in ("reboot", verb))
    return Reply()


def _upgrade_firmware(call: Call) -> Reply:
    for name in call.sentence.attributes:
        raise unknown_parameter(name)
    call.device.upgrade_firmware()
    return Reply()


_REBOOT = frozenset({"reboot"})
SYSTEM = EmulatedMenu(
    "/system",
    verbs=frozenset(),
    rows=lambda _device: (),
    actions={"reboot": partial(_restart_unit, "reboot")},
    needs={"reboot": _REBOOT},
)
DEVICE_MODE = EmulatedMenu("/system/device-mode", singleton=True, rows=_device_mode)
IDENTITY = EmulatedMenu(
    "/system/identity",
    (EmulatedField("name", Text(), "MikroTik"),),
    verbs=EDIT,
    singleton=True,
    factory=_factory_identity,
)
RESOURCE = EmulatedMenu("/system/resource", singleton=True, rows=_list_resource)
ROUTERBOARD = EmulatedMenu(
    "/system/routerboard",
    singleton=True,
    rows=_list_routerboard,
    actions={"upgrade": _upgrade_firmware},
    needs={"upgrade": frozenset({"write"})},
)
PACKAGE = EmulatedMenu(
    "/system/package",
    named_by="name",
    rows=_list_packages,
    actions={"apply-changes": partial(_restart_unit, "apply-changes")},
    needs={"apply-changes": _REBOOT},
)
HEALTH = EmulatedMenu("/system/health", named_by="name", rows=_list_health)
