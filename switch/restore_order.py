"""The order in which a whole state is restored: the menus that are written together, and what they disturb. Pure.

Traffic first, access last. Within a stage rows are added and set in the order of its menus, and removed in the opposite
order: a row comes before, and is removed after, the rows that refer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.routeros.change_plan import AffectedLink
from core.routeros.diff import RowChange
from core.routeros.menus import (
    BANDWIDTH_SERVER,
    BRIDGE,
    BRIDGE_PORT,
    BRIDGE_VLAN,
    CLOCK,
    COMMUNITY,
    DISCOVERY,
    DNS,
    GROUP,
    IDENTITY,
    LOG_ACTION,
    LOGGING,
    MAC_PING,
    MAC_TELNET,
    MAC_WINBOX,
    NTP_CLIENT,
    PFC,
    PROFILE,
    QOS_PORT,
    QUEUE,
    SERVICE,
    SETTINGS,
    SNMP,
    USER,
    Menu,
)
from switch.port_changes import nodes

Changes = tuple[RowChange, ...]


@dataclass(frozen=True)
class Stage:
    """Menus that are written together. `effect`: which links the changes disturb, given the links behind the ports."""

    title: str
    menus: tuple[Menu, ...]
    effect: Callable[[Changes, tuple[AffectedLink, ...]], str] = lambda _changes, _links: "disturbs nothing"


def _describe_bridge_disturbance(changes: Changes, links: tuple[AffectedLink, ...]) -> str:
    ports = [change.row for change in changes if change.menu is BRIDGE_PORT]
    if ports:
        behind = nodes(link for link in links if link.name in ports)
        return f"interrupts {', '.join(ports)} ({behind})"
    if any(change.menu is BRIDGE and "disabled" in dict(change.values) for change in changes):
        return "interrupts all ports of the bridge"
    return "changes which VLANs pass" if any(change.menu is BRIDGE_VLAN for change in changes) else "disturbs nothing"


def _describe_queue_disturbance(changes: Changes, _links: tuple[AffectedLink, ...]) -> str:
    # MikroTik manual, 'Quality of Service': altering queues or buffers halts traffic for a moment.
    if any(change.menu in (QUEUE, SETTINGS) for change in changes):
        return "halts traffic of all ports for a moment"
    ports = sum(change.menu is QOS_PORT for change in changes)
    return f"changes how {ports} port{'s' if ports != 1 else ''} queue" if ports else "disturbs nothing"


def _describe_service_changes(changes: Changes, _links: tuple[AffectedLink, ...]) -> str:
    ways = {"opens": "no", "closes": "yes"}
    by_way = {
        way: [change.row for change in changes if ("disabled", off) in change.values] for way, off in ways.items()
    }
    return ", ".join(f"{way} {', '.join(rows)}" for way, rows in by_way.items() if rows) or "changes who may connect"


STAGES = (
    Stage("bridge, its VLANs and ports", (BRIDGE, BRIDGE_VLAN, BRIDGE_PORT), _describe_bridge_disturbance),
    Stage("traffic classes", (PROFILE, QUEUE, PFC, SETTINGS, QOS_PORT), _describe_queue_disturbance),
    Stage("identity, time and names", (IDENTITY, CLOCK, NTP_CLIENT, DNS)),
    Stage("neighbour discovery", (DISCOVERY,)),
    Stage("log", (LOG_ACTION, LOGGING)),
    Stage("SNMP", (COMMUNITY, SNMP)),
    Stage("users", (GROUP, USER)),
    Stage("services", (SERVICE, MAC_TELNET, MAC_WINBOX, MAC_PING, BANDWIDTH_SERVER), _describe_service_changes),
)
"""Every menu that a backup holds is in one of them, but the interfaces, which go before all of these."""
