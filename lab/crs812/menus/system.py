"""/system: what the unit is. Hardware figures: MikroTik's product data for CRS812-8DS-2DQ-2DDQ."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import Device
from ..kinds import Text
from ..menu import EDIT, Field, Menu, Values

_GIB = 1024**3


def _identity(device: Device) -> Iterator[Values]:
    yield {"name": device.config.identity}


def _resource(device: Device) -> Iterator[Values]:
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
        "free-hdd-space": str(_GIB // 4),
        "total-hdd-space": str(_GIB // 2),
        "architecture-name": "arm64",
        "board-name": device.config.model,
        "platform": "MikroTik",
    }


def _routerboard(device: Device) -> Iterator[Values]:
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


def _packages(device: Device) -> Iterator[Values]:
    for number, name in enumerate(device.config.packages, start=1):
        yield {
            ".id": f"*{number:X}",
            "name": name,
            "version": device.config.version.split()[0],
            "build-time": "2026-08-12 09:14:02",
            "disabled": "false",
            "available": "false",
        }


def _health(_device: Device) -> Iterator[Values]:
    """A unit at rest: one row a sensor, as published prints of CRS units show them; the figures are made up."""
    sensors = [("cpu-temperature", "47", "C"), ("switch-temperature", "52", "C")]
    sensors += [(f"fan{number}-speed", "4380", "RPM") for number in range(1, 5)]
    sensors += [("psu1-state", "ok", ""), ("psu2-state", "ok", "")]
    for number, (name, value, unit) in enumerate(sensors, start=1):
        yield {".id": f"*{number:X}", "name": name, "value": value, "type": unit}


def _device_mode(device: Device) -> Iterator[Values]:
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


DEVICE_MODE = Menu("/system/device-mode", singleton=True, rows=_device_mode)
IDENTITY = Menu("/system/identity", (Field("name", Text(), "MikroTik"),), verbs=EDIT, singleton=True, factory=_identity)
RESOURCE = Menu("/system/resource", singleton=True, rows=_resource)
ROUTERBOARD = Menu("/system/routerboard", singleton=True, rows=_routerboard)
PACKAGE = Menu("/system/package", named_by="name", rows=_packages)
HEALTH = Menu("/system/health", named_by="name", rows=_health)
