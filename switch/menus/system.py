"""The unit itself: what it is, what it is called, its time, its names, its log, and what it tells of itself.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); defaults: MikroTik manual.
"""

from __future__ import annotations

from switch.values import Kind

from .menu import FACT, FLAG, NOTE, STATE, Field, Menu

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
    fields={"name": FACT, "version": FACT, "disabled": Field(Kind.FLAG, default="no", read_only=True)},
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
        "scheduler": Field(Kind.FLAG, default="yes", read_only=True, volatile=True),
        "flagged": Field(Kind.FLAG, default="no", read_only=True, volatile=True),
    },
)
"""What the device allows; only a press of its button changes it (MikroTik manual, 'Device-mode')."""
IDENTITY = Menu("/system/identity", key=(), fields={"name": Field()})
CLOCK = Menu(
    "/system/clock",
    key=(),
    fields={"time-zone-autodetect": Field(Kind.FLAG, default="yes"), "time-zone-name": Field()},
)
NTP_CLIENT = Menu(
    "/system/ntp/client",
    key=(),
    fields={"enabled": FLAG, "mode": Field(default="unicast"), "servers": Field(default="")},
)
DNS = Menu("/ip/dns", key=(), fields={"servers": Field(default=""), "allow-remote-requests": FLAG})
DISCOVERY = Menu(
    "/ip/neighbor/discovery-settings",
    key=(),
    fields={
        "discover-interface-list": Field(),
        "protocol": Field(Kind.LIST),
        "mode": Field(default="tx-and-rx"),
        "lldp-dcbx": FLAG,  # tells nodes of priority flow control; documented for units with a switch chip
    },
)
LOG_ACTION = Menu(
    "/system/logging/action",
    key=("name",),
    fields={
        "name": Field(),
        "target": Field(default="memory"),
        "remote": Field(default="0.0.0.0"),  # noqa: S104 - none (inferred)
        "remote-port": Field(Kind.COUNT, default="514"),
        "remote-log-format": Field(default="default"),
    },
)
LOGGING = Menu(
    "/system/logging",
    key=("topics", "action"),
    fields={"topics": Field(Kind.LIST), "action": Field(), "disabled": FLAG},
)
SNMP = Menu(
    "/snmp",
    key=(),
    fields={
        "enabled": FLAG,
        "trap-version": Field(Kind.COUNT, default="1"),
        # Below version 3 the name of a community is its password.
        "trap-community": Field(default="", private=True),
    },
)
COMMUNITY = Menu(
    "/snmp/community",
    key=("name",),
    fields={
        "name": Field(),
        "addresses": Field(Kind.LIST, default="::/0"),
        "security": Field(default="none"),
        "read-access": Field(Kind.FLAG, default="yes"),
        "write-access": FLAG,
        "authentication-protocol": Field(default="MD5"),
        "encryption-protocol": Field(default="DES"),
        "authentication-password": Field(secret=True),
        "encryption-password": Field(secret=True),
        "disabled": FLAG,
    },
)
SCRIPT = Menu(
    "/system/script",
    key=("name",),
    fields={"name": Field(), "comment": NOTE, "source": Field(default=""), "policy": Field(Kind.LIST, default="")},
)
SCHEDULER = Menu(
    "/system/scheduler",
    key=("name",),
    fields={
        "name": Field(),
        "comment": NOTE,
        "interval": Field(Kind.DURATION, default="0s"),
        "on-event": Field(default=""),
        "policy": Field(Kind.LIST, default=""),
        "disabled": FLAG,
        "next-run": STATE,
    },
)
