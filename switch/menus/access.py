"""Who may come in, and by which door.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); the MAC and bandwidth-test servers:
MikroTik manual, 'MAC server' and 'Bandwidth Test'.
"""

from __future__ import annotations

from switch.values import Kind

from .menu import FLAG, NOTE, STATE, Field, Menu

SERVICE = Menu(
    "/ip/service",
    key=("name",),
    fixed=True,
    hidden=("dynamic", "yes"),  # from 7.23 on open connections are printed, too
    fields={
        "name": Field(read_only=True),
        "port": Field(Kind.COUNT),
        # 7.24 calls it `available-from` (command trees of both releases).
        "address": Field(Kind.LIST, default="", renamed=((7, 24, 0, -1), "available-from")),
        "certificate": Field(default="none"),
        "disabled": FLAG,
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
    },
)
GROUP = Menu("/user/group", key=("name",), fields={"name": Field(), "policy": Field(Kind.POLICY), "comment": NOTE})
USER = Menu(
    "/user",
    key=("name",),
    fields={
        "name": Field(),
        "group": Field(),
        "address": Field(Kind.LIST, default=""),
        "password": Field(secret=True),
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
MAC_TELNET = Menu("/tool/mac-server", key=(), fields={"allowed-interface-list": Field()})
MAC_WINBOX = Menu("/tool/mac-server/mac-winbox", key=(), fields={"allowed-interface-list": Field()})
MAC_PING = Menu("/tool/mac-server/ping", key=(), fields={"enabled": Field(Kind.FLAG)})
BANDWIDTH_SERVER = Menu("/tool/bandwidth-server", key=(), fields={"enabled": Field(Kind.FLAG)})
