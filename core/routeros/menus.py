"""The RouterOS menus this project reads or writes, as tables. Only fields named there are ever sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.routeros.values import ValueKind, canonical

Row = Mapping[str, str]
"""One row as RouterOS prints it: every value is text, an unset field is absent."""

Key = tuple[str, ...]
"""Key of a row: the values of the menu's key fields; () in a menu of one row."""

Sentence = tuple[str, ...]
"""A command word such as /interface/ethernet/set, then its attribute (=k=v) and query (?...) words."""

Release = tuple[int, int, int, int]
"""major, minor, patch, and 0 for a release or -1 for a beta or candidate of it."""

OLDEST: Release = (7, 23, 0, 0)
"""First release with safe mode scriptable (7.18), breakout seen at full speed on GB10 (7.23) and PFC on
CRS8xx (7.23)."""


@dataclass(frozen=True)
class MenuField:
    """One field.

    kind: how its text is compared. default: the meaning of its absence (None = absence is not a value). since: the
    first release that has it. renamed: its name from a release on. secret: never asked for, although a switch prints
    some to users with the policy `sensitive`; so it is written with a new row and not compared. volatile: changes by
    itself; it is read for preconditions and reports, never compared. only_if: another field and its value, without
    which this field has no meaning and is not compared. private: its value may give access, so it is never shown.
    """

    kind: ValueKind = ValueKind.WORD
    default: str | None = None
    since: Release = OLDEST
    renamed: tuple[Release, str] | None = None
    read_only: bool = False
    volatile: bool = False
    secret: bool = False
    only_if: tuple[str, str] | None = None
    private: bool = False


@dataclass(frozen=True)
class Menu:
    """One menu. `key`: the fields that name a row for the user (none: the menu has one row).

    fixed: rows are there from the factory and cannot be added or removed. hidden: rows that are left out of
    every reading, by a field and the value it has there.
    """

    path: str
    key: Key
    fields: Mapping[str, MenuField] = field(hash=False)
    fixed: bool = False
    hidden: tuple[str, str] | None = None

    @property
    def single(self) -> bool:
        """Return whether the menu has exactly one row, which is written without an `.id`."""
        return not self.key

    def spelled(self, name: str, release: Release) -> str:
        """The name a release has for a field of this table."""
        renamed = self.fields[name].renamed
        return renamed[1] if renamed and release >= renamed[0] else name

    def sentence(self, release: Release = OLDEST) -> Sentence:
        """The sentence that reads the menu: every field of the table that the release has and that may be
        seen. Counters are never asked for, so they never look like drift."""
        names = [
            self.spelled(name, release)
            for name, field_ in self.fields.items()
            if not field_.secret and field_.since <= release
        ]
        return (f"{self.path}/print", f"=.proplist={','.join(names if self.single else ('.id', *names))}")

    def counts(self, name: str, row: Row) -> bool:
        """Return whether a field has a meaning in `row`."""
        if not (needed := self.fields[name].only_if):
            return True
        other, value = needed
        decides = self.fields[other]
        try:
            return canonical(decides.kind, row.get(other, decides.default or "")) == value
        except ValueError:
            return True

    def key_of(self, row: Row) -> Key:
        """Return the key of `row`; a key field that is not printed is ""."""
        return tuple(row.get(name, self.fields[name].default or "") for name in self.key)


FACT = MenuField(read_only=True)
STATE = MenuField(read_only=True, volatile=True)
FLAG = MenuField(ValueKind.FLAG, default="no")
NOTE = MenuField(default="")
COUNT = MenuField(ValueKind.COUNT)


# Interfaces, the bridge and its VLANs.
# Paths, arguments and words: RouterOS 7.23 command tree (`/console/inspect`); read-only fields and defaults:
# MikroTik manual, 'Ethernet' and 'Bridging and switching'.

ETHERNET = Menu(
    "/interface/ethernet",
    key=("default-name",),  # `name` belongs to the user and may be changed
    fixed=True,
    fields={
        "default-name": FACT,
        "name": MenuField(),
        "disabled": FLAG,
        "auto-negotiation": MenuField(ValueKind.FLAG, default="yes"),
        # A lane that negotiates ignores it (MikroTik manual, 'Ethernet') and prints none from the factory, and no
        # command takes it off a lane again: `unset` has the one word sfp-shutdown-temperature (command trees of
        # 7.21.5 to 7.22.3).
        # claim: switch.lanes.negotiated-speed, switch.lanes.unset-speed
        "speed": MenuField(only_if=("auto-negotiation", "no")),
        "fec-mode": MenuField(default="auto"),
        "l2mtu": COUNT,
        "mtu": MenuField(ValueKind.COUNT, default="1500"),
        "rx-flow-control": MenuField(default="off"),
        "tx-flow-control": MenuField(default="off"),
    },
)
BRIDGE = Menu(
    "/interface/bridge",
    key=("name",),
    # `mtu` is never written; by one of its own RouterOS refuses every change of the bridge, see gate.py.
    # A bridge with a peer port shares its links with a second switch (MLAG), which this project does not set up.
    fields={
        "name": MenuField(),
        "disabled": FLAG,
        "vlan-filtering": FLAG,
        "mtu": STATE,
        "mlag-peer-port": MenuField(default="none", read_only=True),
        "mlag-priority": MenuField(default="128", read_only=True),
    },
)
BONDING = Menu(
    "/interface/bonding",
    key=("name",),
    fixed=True,
    fields={
        "name": FACT,
        "slaves": MenuField(ValueKind.LIST, default="", read_only=True),
        "mlag-id": FACT,
        "disabled": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
"""Bonds: several interfaces as one. A slave is a port of a bridge only through its bond. Read, never written."""
BRIDGE_PORT = Menu(
    "/interface/bridge/port",
    key=("interface",),
    # A dynamic port belongs to its creator (a bonding, a VPN) and cannot be set.
    hidden=("dynamic", "yes"),
    fields={
        "interface": MenuField(),
        "bridge": MenuField(),
        "disabled": FLAG,
        "hw": MenuField(ValueKind.FLAG, default="yes"),
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
        "hw-offload": MenuField(ValueKind.FLAG, default="no", read_only=True, volatile=True),
    },
)
# claim: switch.vlan.isolation
BRIDGE_VLAN = Menu(
    "/interface/bridge/vlan",
    key=("bridge", "vlan-ids"),
    hidden=("dynamic", "yes"),  # created by the bridge itself for the pvid of its ports
    fields={
        "bridge": MenuField(),
        "vlan-ids": MenuField(ValueKind.LIST),
        "tagged": MenuField(ValueKind.LIST, default=""),
        "untagged": MenuField(ValueKind.LIST, default=""),
        "comment": NOTE,
        "disabled": FLAG,
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
BRIDGE_HOST = Menu(
    "/interface/bridge/host",
    key=("mac-address", "on-interface"),
    fixed=True,
    fields={
        "mac-address": STATE,
        "on-interface": STATE,
        "local": MenuField(ValueKind.FLAG, read_only=True, volatile=True),
    },
)
"""Learned addresses by port: the switch's only information about the device on a leg. One device that invents addresses
fills the table (131072 rows on a CRS812), so only single addresses are asked for.
"""


# claim: switch.bridge-host.query
def place_of(address: str) -> Sentence:
    """Return the sentence that asks behind which port an Ethernet address is."""
    return (*BRIDGE_HOST.sentence(), f"?mac-address={address.upper()}")


# Quality of service in the switch chip: what makes a fabric lossless for RoCE.
# Source: MikroTik manual, 'Quality of Service' (CRS8xx: PFC, ECN and `automap` from 7.23 on). The command tree
# of a virtual machine does not have these menus; that 7.23.0 itself has them all as documented is *unproven*.

# claim: switch.qos.menus
_ROOT = "/interface/ethernet/switch/qos"
_CLASS = MenuField(ValueKind.COUNT, default="0")

SETTINGS = Menu(
    f"{_ROOT}/settings",
    key=(),
    fixed=True,
    fields={
        "lossless-traffic-class": MenuField(ValueKind.LIST, default="auto"),
        "lossless-buffers": MenuField(default="auto"),
    },
)
PROFILE = Menu(
    f"{_ROOT}/profile",
    key=("name",),
    hidden=("dynamic", "yes"),
    fields={
        "name": MenuField(),
        "dscp": MenuField(ValueKind.COUNT),
        "traffic-class": _CLASS,
        "automap": MenuField(ValueKind.FLAG),  # makes the DSCP and PCP maps by itself; sources differ about its default
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
QUEUE = Menu(
    f"{_ROOT}/tx-manager/queue",
    key=("tx-manager", "traffic-class"),
    fixed=True,
    fields={
        "tx-manager": MenuField(read_only=True),
        "traffic-class": MenuField(ValueKind.COUNT, read_only=True),
        "schedule": MenuField(),
        "weight": MenuField(ValueKind.COUNT, default="0"),
        "ecn": FLAG,
    },
)
PFC = Menu(
    f"{_ROOT}/priority-flow-control",
    key=("name",),
    fields={"name": MenuField(), "traffic-class": MenuField(ValueKind.LIST), "rx": FLAG, "tx": FLAG},
)
QOS_PORT = Menu(
    f"{_ROOT}/port",
    key=("name",),
    fixed=True,
    fields={
        "name": MenuField(read_only=True),
        "trust-l3": MenuField(default="ignore"),
        "pfc": MenuField(default="disabled"),
        # claim: switch.qos.egress-rate
        "egress-rate-queue3": MenuField(ValueKind.RATE, default="0"),
    },
)


# Menus of the unit itself: its model, identity, time, DNS, log, and monitoring.
# Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); defaults: MikroTik manual.

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


# Menus of users and services.
# Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); the MAC and bandwidth-test servers: MikroTik
# manual, 'MAC server' and 'Bandwidth Test'.

SERVICE = Menu(
    "/ip/service",
    key=("name",),
    fixed=True,
    hidden=("dynamic", "yes"),  # from 7.23 on open connections are printed, too
    fields={
        "name": MenuField(read_only=True),
        "port": MenuField(ValueKind.COUNT),
        # 7.24 calls it `available-from` (command trees of both releases).
        "address": MenuField(ValueKind.LIST, default="", renamed=((7, 24, 0, -1), "available-from")),
        "certificate": MenuField(default="none"),
        "disabled": FLAG,
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
GROUP = Menu(
    "/user/group", key=("name",), fields={"name": MenuField(), "policy": MenuField(ValueKind.POLICY), "comment": NOTE}
)
USER = Menu(
    "/user",
    key=("name",),
    fields={
        "name": MenuField(),
        "group": MenuField(),
        "address": MenuField(ValueKind.LIST, default=""),
        "password": MenuField(secret=True),
        "comment": NOTE,
        "disabled": FLAG,
    },
)
ACTIVE = Menu(
    "/user/active",
    key=(".id",),
    fixed=True,
    fields={"name": STATE, "address": STATE, "via": STATE, "when": STATE},
)
ARP = Menu("/ip/arp", key=("address",), fixed=True, fields={"address": STATE, "mac-address": STATE})
MAC_TELNET = Menu("/tool/mac-server", key=(), fields={"allowed-interface-list": MenuField()})
MAC_WINBOX = Menu("/tool/mac-server/mac-winbox", key=(), fields={"allowed-interface-list": MenuField()})
MAC_PING = Menu("/tool/mac-server/ping", key=(), fields={"enabled": MenuField(ValueKind.FLAG)})
BANDWIDTH_SERVER = Menu("/tool/bandwidth-server", key=(), fields={"enabled": MenuField(ValueKind.FLAG)})

MENUS: tuple[Menu, ...] = (
    *(RESOURCE, ROUTERBOARD, PACKAGE, DEVICE_MODE, SAFE_MODE),
    *(ETHERNET, BONDING, BRIDGE, BRIDGE_PORT, BRIDGE_VLAN, BRIDGE_HOST),
    *(SETTINGS, PROFILE, QUEUE, PFC, QOS_PORT),
    *(IDENTITY, CLOCK, NTP_CLIENT, DNS, DISCOVERY, LOG_ACTION, LOGGING, SNMP, COMMUNITY, SCRIPT, SCHEDULER),
    *(SERVICE, GROUP, USER, ACTIVE, ARP, MAC_TELNET, MAC_WINBOX, MAC_PING, BANDWIDTH_SERVER),
)
"""All menus with a table."""
