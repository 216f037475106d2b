"""All that a run knows of a switch: the rows of the menus it reads, checked for what no switch can have.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .diff import UnreadableError, index
from .menus import BRIDGE, BRIDGE_PORT, ETHERNET, IDENTITY, PACKAGE, READ, RESOURCE, ROUTERBOARD, Menu, Row
from .sentences import Sentence
from .values import canonical

Ask = Callable[[Sentence], Sequence[Row]]
"""Sends one sentence and gives the rows of the answer."""


@dataclass(frozen=True)
class Reading:
    """One reading of a switch. Two readings are equal when every field that was read is equal."""

    resource: Row
    routerboard: Row
    packages: dict[str, Row]
    ethernet: dict[str, Row]  # by default-name
    bridges: dict[str, Row]
    ports: dict[str, Row]  # static bridge ports, by the name the interface has now
    identity: Row


def read(ask: Ask) -> Reading:
    """Read a switch: one sentence a menu. Raises UnreadableError for an answer no switch would give, and
    whatever `ask` raises; so what is returned is known, and there is no reading with a hole in it."""
    rows = {menu.path: tuple(ask(menu.sentence)) for menu in READ}

    def by_key(menu: Menu) -> dict[str, Row]:
        return index(menu, rows[menu.path])

    ethernet = by_key(ETHERNET)
    if not ethernet:
        raise UnreadableError(f"{ETHERNET.path} has no rows")
    for name, row in ethernet.items():
        if not row.get("name"):
            raise UnreadableError(f"{ETHERNET.path} {name} has no name")
    # A dynamic port belongs to whatever made it (a bonding, a VPN) and cannot be set.
    ports = tuple(row for row in rows[BRIDGE_PORT.path] if not _dynamic(row))
    return Reading(
        resource=by_key(RESOURCE)[""],
        routerboard=by_key(ROUTERBOARD)[""],
        packages=by_key(PACKAGE),
        ethernet=ethernet,
        bridges=by_key(BRIDGE),
        ports=index(BRIDGE_PORT, ports),
        identity=by_key(IDENTITY)[""],
    )


def _dynamic(row: Row) -> bool:
    try:
        return canonical(BRIDGE_PORT.fields["dynamic"].kind, row.get("dynamic", "no")) == "yes"
    except ValueError as fault:
        raise UnreadableError(f"{BRIDGE_PORT.path} dynamic: {fault}") from None
