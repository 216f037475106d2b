"""Menus of the unit itself: its model, identity, time, DNS, log, and monitoring.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); defaults: MikroTik manual.
"""

from __future__ import annotations

from core.routeros.menus.menu import FACT, FLAG, NOTE, STATE, Menu, MenuField
from core.routeros.values import ValueKind

RESOURCE = Menu("/system/resource", key=(), fixed=True, fields={"board-name": FACT, "version": FACT, "uptime": STATE})
ROUTERBOARD = Menu(
    "/system/routerboard",
    key=(),
    fixed=True,
    fields={"model": FACT, "serial-number": FACT, "current-firmware": FACT, "upgrade-firmware": FACT},
)
PACKAGE = Menu(
    "/system/package",
    key=("name",),
    fixed=True,
    fields={
        "name": FACT,
        "version": FACT,
        "disabled": MenuField(ValueKind.FLAG, default="no", read_only=True),
        # From 7.18 on packages that could be installed are printed, too.
        "available": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
SAFE_MODE = Menu(
    "/safe-mode",
    key=(),
    fixed=True,
    fields={"enabled": STATE, "current": STATE, "user": STATE, "owner": STATE},
)
DEVICE_MODE = Menu(
    "/system/device-mode",
    key=(),
    fixed=True,
    fields={
        "mode": STATE,
        "scheduler": MenuField(ValueKind.FLAG, default="yes", read_only=True, volatile=True),
        "flagged": MenuField(ValueKind.FLAG, default="no", read_only=True, volatile=True),
    },
)
"""Features that the device allows; only a press of its button changes them (MikroTik manual, 'Device-mode')."""
IDENTITY = Menu("/system/identity", key=(), fields={"name": MenuField()})
CLOCK = Menu(
    "/system/clock",
    key=(),
    fields={"time-zone-autodetect": MenuField(ValueKind.FLAG, default="yes"), "time-zone-name": MenuField()},
)
NTP_CLIENT = Menu(
    "/system/ntp/client",
    key=(),
    fields={"enabled": FLAG, "mode": MenuField(default="unicast"), "servers": MenuField(default="")},
)
DNS = Menu("/ip/dns", key=(), fields={"servers": MenuField(default=""), "allow-remote-requests": FLAG})
DISCOVERY = Menu(
    "/ip/neighbor/discovery-settings",
    key=(),
    fields={
        "discover-interface-list": MenuField(),
        "protocol": MenuField(ValueKind.LIST),
        "mode": MenuField(default="tx-and-rx"),
        "lldp-dcbx": FLAG,  # announces priority flow control to nodes; documented for units with a switch chip
    },
)
LOG_ACTION = Menu(
    "/system/logging/action",
    key=("name",),
    fields={
        "name": MenuField(),
        "target": MenuField(default="memory"),
        "remote": MenuField(default="0.0.0.0"),  # noqa: S104 - none (inferred)
        "remote-port": MenuField(ValueKind.COUNT, default="514"),
        "remote-log-format": MenuField(default="default"),
    },
)
LOGGING = Menu(
    "/system/logging",
    key=("topics", "action"),
    fields={"topics": MenuField(ValueKind.LIST), "action": MenuField(), "disabled": FLAG},
)
SNMP = Menu(
    "/snmp",
    key=(),
    fields={
        "enabled": FLAG,
        "trap-version": MenuField(ValueKind.COUNT, default="1"),
        # Below version 3 the name of a community is its password.
        "trap-community": MenuField(default="", private=True),
    },
)
# claim: switch.snmp.passwords
COMMUNITY = Menu(
    "/snmp/community",
    key=("name",),
    fields={
        "name": MenuField(),
        "addresses": MenuField(ValueKind.LIST, default="::/0"),
        "security": MenuField(default="none"),
        "read-access": MenuField(ValueKind.FLAG, default="yes"),
        "write-access": FLAG,
        "authentication-protocol": MenuField(default="MD5"),
        "encryption-protocol": MenuField(default="DES"),
        "authentication-password": MenuField(secret=True),
        "encryption-password": MenuField(secret=True),
        "disabled": FLAG,
    },
)
SCRIPT = Menu(
    "/system/script",
    key=("name",),
    fields={
        "name": MenuField(),
        "comment": NOTE,
        "source": MenuField(default=""),
        "policy": MenuField(ValueKind.LIST, default=""),
    },
)
SCHEDULER = Menu(
    "/system/scheduler",
    key=("name",),
    fields={
        "name": MenuField(),
        "comment": NOTE,
        "interval": MenuField(ValueKind.DURATION, default="0s"),
        "on-event": MenuField(default=""),
        "policy": MenuField(ValueKind.LIST, default=""),
        "disabled": FLAG,
        "next-run": STATE,
    },
)
