"""The bridge: that it is there, which ports it has, which VLANs it carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from switch.cages import masters_of
from switch.diff import Change, Wanted
from switch.menus import BRIDGE, BRIDGE_PORT, BRIDGE_VLAN

from .share import Part, Seen, Share

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

OURS = "sparkrack"
"""The comment on rows that we add where the menu has one."""


def legs_of(switch: Switch, seen: Seen) -> tuple[str, ...]:
    """The master interfaces of all declared cages, by the name they have now."""
    return tuple(seen.name(interface) for cage in switch.cages for interface in masters_of(switch, cage))


def parts(rack: Rack, switch: Switch, seen: Seen) -> Iterator[Part]:
    """Bridge, VLANs, ports; the VLANs before the ports that carry them."""
    if not switch.cages:
        return
    legs = legs_of(switch, seen)
    # A bridge without ports shuts nobody out, so a new one filters from the start.
    filters = {"vlan-filtering": "yes"} if rack.fabric.vlans and seen.lacks(switch.bridge) else {}
    bridge = Wanted((switch.bridge,), {"disabled": "no", **filters})
    yield Part(f"bridge {switch.bridge}", (Share(BRIDGE, (bridge,)),))
    yield Part("VLANs of the fabric", (_vlans(rack, switch, legs),))
    ports = tuple(Wanted((name,), {"bridge": switch.bridge, "hw": "yes", "disabled": "no"}) for name in legs)
    # Companion lanes are ports by default, and the management ports are needed for whoever reads this.
    spared = frozenset((name,) for name in seen.names.values())
    share = Share(BRIDGE_PORT, ports, purge="bridge-ports" in switch.purge, spared=spared)
    yield Part(f"ports of bridge {switch.bridge}", (share,), _interrupts)


def filtering(rack: Rack, switch: Switch, seen: Seen) -> Iterator[Part]:
    """The last thing that is written: whoever filters before its VLANs are there locks itself out."""
    if switch.cages and rack.fabric.vlans and not seen.lacks(switch.bridge):
        wanted = Wanted((switch.bridge,), {"vlan-filtering": "yes"})
        yield Part("VLAN filtering", (Share(BRIDGE, (wanted,)),), lambda _changes: "only declared VLANs pass")


def _vlans(rack: Rack, switch: Switch, legs: tuple[str, ...]) -> Share:
    """Every leg carries both halves of its port, so each VLAN is tagged on all of them. The bridge itself is
    no member: nobody logs in over the fabric."""
    wanted = (
        Wanted((switch.bridge, str(vlan)), {"tagged": ",".join(legs), "comment": OURS, "disabled": "no"})
        for vlan in rack.fabric.vlans or ()
    )
    return Share(BRIDGE_VLAN, tuple(wanted), purge="bridge-vlans" in switch.purge, listed=True)


def _interrupts(changes: tuple[Change, ...]) -> str:
    names = ", ".join(change.row for change in changes)
    return f"interrupts {names}"
