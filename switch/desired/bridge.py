"""The bridge: that it is there, which ports it has, which VLANs it carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import BRIDGE, BRIDGE_PORT, BRIDGE_VLAN
from switch.cages import masters_of
from switch.desired.menu_rows import ChangeGroup, DeviceContext, MenuDesired

if TYPE_CHECKING:
    from core.model import Rack, Switch

OURS = "sparkrack"
"""The comment on rows that we add where the menu has one."""


def legs_on_device(switch: Switch, seen: DeviceContext) -> tuple[str, ...]:
    """The bridge ports of the legs of all declared cages, by the name they have now: a leg itself, or its bond."""
    members = (seen.member(interface) for cage in switch.cages for interface in masters_of(switch, cage))
    return tuple(dict.fromkeys(members))


def parts(rack: Rack, switch: Switch, seen: DeviceContext) -> Iterator[ChangeGroup]:
    """Bridge, VLANs, ports; the VLANs before the ports that carry them."""
    if not switch.cages:
        return
    legs = legs_on_device(switch, seen)
    # A bridge without ports locks no session out, so a new one filters from the start.
    filters = {"vlan-filtering": "yes"} if rack.fabric.vlans and seen.lacks(switch.bridge) else {}
    bridge = DesiredRow((switch.bridge,), {"disabled": "no", **filters})
    yield ChangeGroup(f"bridge {switch.bridge}", (MenuDesired(BRIDGE, (bridge,)),))
    yield ChangeGroup("VLANs of the fabric", (_vlan_menu(rack, switch, legs),))
    ports = tuple(DesiredRow((name,), {"bridge": switch.bridge, "hw": "yes", "disabled": "no"}) for name in legs)
    # Companion lanes are ports by default, and the management ports are needed for our own session.
    spared = frozenset((name,) for name in (*seen.names.values(), *seen.bonds.values()))
    share = MenuDesired(BRIDGE_PORT, ports, purge="bridge-ports" in switch.purge, spared=spared)
    yield ChangeGroup(f"ports of bridge {switch.bridge}", (share,), _describe_interruption)


def filtering(rack: Rack, switch: Switch, seen: DeviceContext) -> Iterator[ChangeGroup]:
    """VLAN filtering, the last change that is written: filtering before the VLANs exist would lock us out."""
    if switch.cages and rack.fabric.vlans and not seen.lacks(switch.bridge):
        wanted = DesiredRow((switch.bridge,), {"vlan-filtering": "yes"})
        yield ChangeGroup(
            "VLAN filtering", (MenuDesired(BRIDGE, (wanted,)),), lambda _changes: "only declared VLANs pass"
        )


def _vlan_menu(rack: Rack, switch: Switch, legs: tuple[str, ...]) -> MenuDesired:
    """Every leg carries both halves of its port, so each VLAN is tagged on all of them. The bridge itself is not a
    member: there are no logins over the fabric.
    """
    wanted = (
        DesiredRow((switch.bridge, str(vlan)), {"tagged": ",".join(legs), "comment": OURS, "disabled": "no"})
        for vlan in rack.fabric.vlans or ()
    )
    return MenuDesired(BRIDGE_VLAN, tuple(wanted), purge="bridge-vlans" in switch.purge, listed=True)


def _describe_interruption(changes: tuple[RowChange, ...]) -> str:
    names = ", ".join(change.row for change in changes)
    return f"interrupts {names}"
