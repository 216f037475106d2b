"""The switch section of rack.yaml as rows of its menus. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.routeros.menus import (
    ACTIVE,
    ARP,
    BONDING,
    BRIDGE,
    BRIDGE_HOST,
    BRIDGE_PORT,
    DEVICE_MODE,
    ETHERNET,
    IDENTITY,
    SAFE_MODE,
    SCHEDULER,
    SCRIPT,
    Menu,
)
from switch.desired import access, bridge, lossless, system
from switch.desired.menu_rows import ChangeGroup, DeviceContext, MenuDesired

if TYPE_CHECKING:
    from core.model import Rack, Switch

__all__ = ["ChangeGroup", "DeviceContext", "MenuDesired", "menus_of", "optional_of", "parts"]

_ALWAYS = (
    ETHERNET,
    BONDING,
    BRIDGE,
    BRIDGE_PORT,
    IDENTITY,
    ACTIVE,
    ARP,
    BRIDGE_HOST,
    SCHEDULER,
    SCRIPT,
    SAFE_MODE,
    DEVICE_MODE,
)


def parts(rack: Rack, switch: Switch, seen: DeviceContext) -> tuple[ChangeGroup, ...]:
    """Return everything declared besides the lanes of cages, in the order it is written: first what carries traffic,
    then monitoring, last what could lock us out.
    """
    return (
        *bridge.parts(rack, switch, seen),
        *lossless.parts(switch, seen),
        *system.parts(rack, switch),
        *access.people(switch),
        *access.services(switch, seen),
        *bridge.filtering(rack, switch, seen),
    )


def menus_of(rack: Rack, switch: Switch) -> tuple[Menu, ...]:
    """The menus that a run for this declaration reads: those it compares, and those that its gates need."""
    return tuple(dict.fromkeys((*_ALWAYS, *(share.menu for share in _role_shares(rack, switch)))))


def optional_of(rack: Rack, switch: Switch) -> tuple[Menu, ...]:
    """Return those menus that a switch may lack."""
    return tuple(share.menu for share in _role_shares(rack, switch) if share.optional)


def _role_shares(rack: Rack, switch: Switch) -> tuple[MenuDesired, ...]:
    """The shares for a switch nothing is known of yet; their menus do not depend on what it reads."""
    return tuple(share for part in parts(rack, switch, DeviceContext()) for share in part.shares)
