"""What rack.yaml says about a switch, as rows of its menus. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from switch.menus import (
    ACTIVE,
    ARP,
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

from . import access, bridging, lossless, system
from .share import Part, Seen, Share

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

__all__ = ["Part", "Seen", "Share", "menus_of", "optional_of", "parts"]

_ALWAYS = (ETHERNET, BRIDGE, BRIDGE_PORT, IDENTITY, ACTIVE, ARP, BRIDGE_HOST, SCHEDULER, SCRIPT, SAFE_MODE, DEVICE_MODE)


def parts(rack: Rack, switch: Switch, seen: Seen) -> tuple[Part, ...]:
    """All that is declared besides the lanes of cages, in the order it is written: first what carries
    traffic, then what is told, last what could lock somebody out."""
    return (
        *bridging.parts(rack, switch, seen),
        *lossless.parts(switch, seen),
        *system.parts(rack, switch),
        *access.people(switch),
        *access.doors(switch, seen),
        *bridging.filtering(rack, switch, seen),
    )


def menus_of(rack: Rack, switch: Switch) -> tuple[Menu, ...]:
    """The menus that a run for this declaration reads: those it compares, and those that its gates need."""
    return tuple(dict.fromkeys((*_ALWAYS, *(share.menu for share in _shares(rack, switch)))))


def optional_of(rack: Rack, switch: Switch) -> tuple[Menu, ...]:
    """Those of them that a switch may lack."""
    return (*(share.menu for share in _shares(rack, switch) if share.optional), DEVICE_MODE)


def _shares(rack: Rack, switch: Switch) -> tuple[Share, ...]:
    """The shares for a switch nothing is known of yet; their menus do not depend on what it reads."""
    return tuple(share for part in parts(rack, switch, Seen()) for share in part.shares)
