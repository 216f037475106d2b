"""Menus of users and services.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); the MAC and bandwidth-test servers: MikroTik
manual, 'MAC server' and 'Bandwidth Test'.
"""

from __future__ import annotations

from core.routeros.menus.menu import FLAG, NOTE, STATE, Menu, MenuField
from core.routeros.values import ValueKind

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
