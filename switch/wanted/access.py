"""Who may come in, and by which door: users, groups, services, and the servers that need no address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from switch.diff import Change, Value, Wanted
from switch.menus import (
    BANDWIDTH_SERVER,
    GROUP,
    MAC_PING,
    MAC_TELNET,
    MAC_WINBOX,
    SCHEDULER,
    SCRIPT,
    SERVICE,
    USER,
    Menu,
)

from .share import Part, Seen, Share

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

READER_GROUP = "sparkrack-reader"
READER_POLICY = "read,rest-api"
"""Enough to read every menu over REST, and nothing else (MikroTik manual, 'User': policies)."""

CLOSED = ("telnet", "ftp", "www")
"""Services that send passwords in clear text."""

GUARDED = ("api-ssl", "ssh", "winbox")
"""Services that are left as they are, for the management subnets only."""


def people(switch: Switch) -> Iterator[Part]:
    """The reader with its group; and, when users are purged, nobody but the reader and ourselves."""
    shares = []
    if switch.reader:
        shares.append(Share(GROUP, (Wanted((READER_GROUP,), {"policy": READER_POLICY}),)))
    users = tuple(_reader(switch))
    purge = "users" in switch.purge
    shares.append(Share(USER, users, purge=purge, spared=frozenset({(switch.user,)}), listed=True))
    yield Part("users", tuple(shares))
    if "scripts" in switch.purge:
        yield Part("scripts", (Share(SCHEDULER, purge=True), Share(SCRIPT, purge=True)))


def _reader(switch: Switch) -> Iterator[Wanted]:
    if switch.reader:
        # The password is set with the row: a switch never tells it, so it cannot be compared later.
        fields: dict[str, Value] = {"group": READER_GROUP, "password": switch.reader.password, "disabled": "no"}
        if switch.management:
            fields["address"] = ",".join(map(str, switch.management))
        yield Wanted((switch.reader.user,), fields)


def doors(switch: Switch, seen: Seen) -> Iterator[Part]:
    """Services for the management subnets only, those with clear text off, and no way in by MAC address."""
    rows = tuple(_services(switch, seen))
    if rows:
        yield Part("services", (Share(SERVICE, rows),), _closes)
    if switch.management is not None:
        yield Part(
            "servers without an address",
            (
                _one(MAC_TELNET, "allowed-interface-list", "none"),
                _one(MAC_WINBOX, "allowed-interface-list", "none"),
                _one(MAC_PING, "enabled", "no"),
                _one(BANDWIDTH_SERVER, "enabled", "no"),
            ),
        )


def _one(menu: Menu, name: str, value: str) -> Share:
    return Share(menu, (Wanted((), {name: value}),))


def _services(switch: Switch, seen: Seen) -> Iterator[Wanted]:
    subnets = {} if switch.management is None else {"address": ",".join(map(str, switch.management))}
    if switch.management is not None:
        for name in CLOSED:
            yield Wanted((name,), {"disabled": "yes"})
        yield Wanted(("api",), {"disabled": "yes"} if switch.tls else subnets)
        for name in GUARDED:
            yield Wanted((name,), subnets)
    if switch.reader:
        shown = {"certificate": seen.certificate}
        port = {"port": str(switch.reader.port)}
        yield Wanted(("www-ssl",), {"disabled": "no", **port, **shown, **subnets})


def _closes(changes: tuple[Change, ...]) -> str:
    off = [change.row for change in changes if ("disabled", "yes") in change.values]
    return f"closes {', '.join(off)}" if off else "changes who may connect"
