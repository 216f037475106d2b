"""Access to the unit: users, groups, services, and the servers that need no address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.routeros.diff import DesiredRow, RowChange, Value
from core.routeros.menus import (
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
from switch.desired.menu_rows import ChangeGroup, DeviceContext, MenuDesired

if TYPE_CHECKING:
    from core.model import Switch

READER_GROUP = "sparkrack-reader"
# claim: switch.reader.policies
READER_POLICY = "read,rest-api"
"""Enough to read every menu over REST, and nothing else (MikroTik manual, 'User': policies)."""

CLOSED = ("telnet", "ftp", "www")
"""Services that send passwords in clear text."""

GUARDED = ("api-ssl", "ssh", "winbox")
"""Services that are left as they are, for the management subnets only."""


def people(switch: Switch) -> Iterator[ChangeGroup]:
    """Yield the reader with its group; and, when users are purged, only the reader and ourselves."""
    shares = []
    if switch.reader:
        shares.append(MenuDesired(GROUP, (DesiredRow((READER_GROUP,), {"policy": READER_POLICY}),)))
    users = tuple(_reader_rows(switch))
    purge = "users" in switch.purge
    shares.append(MenuDesired(USER, users, purge=purge, spared=frozenset({(switch.user,)}), listed=True))
    yield ChangeGroup("users", tuple(shares))
    if "scripts" in switch.purge:
        yield ChangeGroup("scripts", (MenuDesired(SCHEDULER, purge=True), MenuDesired(SCRIPT, purge=True)))


def _reader_rows(switch: Switch) -> Iterator[DesiredRow]:
    if switch.reader:
        # The password is set with the row: a switch never prints it, so it cannot be compared later.
        fields: dict[str, Value] = {"group": READER_GROUP, "password": switch.reader.password, "disabled": "no"}
        if switch.management:
            fields["address"] = ",".join(map(str, switch.management))
        yield DesiredRow((switch.reader.user,), fields)


def services(switch: Switch, seen: DeviceContext) -> Iterator[ChangeGroup]:
    """Return services for the management subnets only, those with clear text disabled, and no access by MAC address."""
    rows = tuple(_list_service_rows(switch, seen))
    if rows:
        yield ChangeGroup("services", (MenuDesired(SERVICE, rows),), _effect_on_access)
    if switch.management is not None:
        yield ChangeGroup(
            "servers without an address",
            (
                _single_setting(MAC_TELNET, "allowed-interface-list", "none"),
                _single_setting(MAC_WINBOX, "allowed-interface-list", "none"),
                _single_setting(MAC_PING, "enabled", "no"),
                _single_setting(BANDWIDTH_SERVER, "enabled", "no"),
            ),
        )


def _single_setting(menu: Menu, name: str, value: str) -> MenuDesired:
    return MenuDesired(menu, (DesiredRow((), {name: value}),))


def _list_service_rows(switch: Switch, seen: DeviceContext) -> Iterator[DesiredRow]:
    subnets = {} if switch.management is None else {"address": ",".join(map(str, switch.management))}
    if switch.management is not None:
        for name in CLOSED:
            yield DesiredRow((name,), {"disabled": "yes"})
        yield DesiredRow(("api",), {"disabled": "yes"} if switch.tls else subnets)
        for name in GUARDED:
            yield DesiredRow((name,), subnets)
    if switch.reader:
        shown = {"certificate": seen.certificate}
        port = {"port": str(switch.reader.port)}
        yield DesiredRow(("www-ssl",), {"disabled": "no", **port, **shown, **subnets})


def _effect_on_access(changes: tuple[RowChange, ...]) -> str:
    off = [change.row for change in changes if ("disabled", "yes") in change.values]
    return f"closes {', '.join(off)}" if off else "changes who may connect"
