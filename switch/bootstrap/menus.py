"""Menus of first contact beyond the menus of a run, and the names it assigns.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); properties of certificates: MikroTik manual,
'Certificates'. These menus are separate from those that a run compares and a backup keeps: keys and certificates cannot
be restored from rows, and the address is needed for the connection.
"""

from __future__ import annotations

from core.routeros.menus import (
    BONDING,
    BRIDGE,
    DEVICE_MODE,
    ETHERNET,
    FACT,
    FLAG,
    GROUP,
    SERVICE,
    STATE,
    USER,
    Menu,
    MenuField,
)
from core.routeros.values import ValueKind

FACTORY_USER = "admin"
FACTORY_ADDRESS = "192.168.88.1"
"""Both: MikroTik manual, 'Default configurations'."""

PLACEHOLDER = "0" * 64
"""The fingerprint of a rack.yaml whose switch was not met yet; no certificate has it."""

CERTIFICATE_NAME = "sparkrack"
"""Name of the created certificate; `sparkrack-2` and so on when that name belongs to an unfit one."""

OWNER_GROUP = "sparkrack"
OWNER_POLICY = "local,ftp,reboot,read,write,policy,test,password,sensitive,api,rest-api"
"""Policies of our user, without other logins: no ssh, telnet, web, winbox, sniff, romon.

read, write, policy (users, scripts), test, password and sensitive are needed by a run and its rollback timer, ftp and
reboot by backups and restores (MikroTik manual, 'User'). rest-api is included so that it can be granted to the reader:
that a user cannot grant what it does not have is inferred. local is the console port, the access when the network does
not work.
"""

CERTIFICATE = Menu(
    "/certificate",
    key=("name",),
    fields={
        "name": MenuField(),
        "common-name": MenuField(),
        "subject-alt-name": MenuField(default=""),
        "key-size": MenuField(),
        "days-valid": MenuField(ValueKind.COUNT, default="365"),
        "key-usage": MenuField(ValueKind.LIST),
        "fingerprint": FACT,
        "private-key": MenuField(ValueKind.FLAG, default="no", read_only=True),
        "expired": MenuField(ValueKind.FLAG, default="no", read_only=True),
        "revoked": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
ADDRESS = Menu(
    "/ip/address",
    key=("address",),
    hidden=("dynamic", "yes"),  # assigned by DHCP, or of a VPN: cannot be set
    fields={
        "address": MenuField(),
        "interface": MenuField(),
        "disabled": FLAG,
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
CLOCK = Menu("/system/clock", key=(), fields={"date": STATE, "time": STATE})

READ = (BRIDGE, CERTIFICATE, SERVICE, GROUP, USER, ADDRESS, CLOCK)
"""Menus that determine what is missing; the unit itself is read with any of them."""

GATE = (ETHERNET, BONDING, DEVICE_MODE, *READ)
"""Further menus that identify the switch, and whether RouterOS has marked it as compromised."""
