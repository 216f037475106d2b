"""What the unit is called, what time it has, whom it tells what happens."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from switch.diff import Value, Wanted
from switch.menus import CLOCK, COMMUNITY, DISCOVERY, DNS, IDENTITY, LOG_ACTION, LOGGING, NTP_CLIENT, SNMP, Menu

from .share import Part, Share

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

LOG_NAME = "sparkrack"
TOPICS = ("info", "error", "warning", "critical")
"""What is logged remotely: the topics that the unit logs to its own memory from the factory."""


def parts(rack: Rack, switch: Switch) -> Iterator[Part]:
    """One part for each key of rack.yaml that is there; an absent key leaves the menu alone."""
    if switch.identity is not None:
        yield _one("identity", IDENTITY, name=switch.identity)
    if switch.time_zone is not None:
        yield _one("time zone", CLOCK, **{"time-zone-autodetect": "no", "time-zone-name": switch.time_zone})
    if switch.ntp is not None:
        yield _one("time servers", NTP_CLIENT, enabled="yes", mode="unicast", servers=_addresses(switch.ntp))
    if switch.dns is not None:
        yield _one("name servers", DNS, servers=_addresses(switch.dns))
    if switch.lldp is not None:
        yield _one("neighbour discovery", DISCOVERY, **_discovery(switch.lldp))
    if switch.syslog is not None:
        yield _syslog(rack, switch)
    if switch.snmp is not None:
        yield _snmp(switch)


def _one(title: str, menu: Menu, **fields: str) -> Part:
    return Part(title, (Share(menu, (Wanted((), fields),)),))


def _addresses(addresses: tuple[IPv4Address, ...]) -> str:
    return ",".join(map(str, addresses))


def _discovery(lldp: bool) -> dict[str, str]:
    """LLDP alone: what a node's lldpd speaks too. CDP and MNDP tell everybody the unit's version."""
    if not lldp:
        return {"discover-interface-list": "none"}
    return {"discover-interface-list": "all", "protocol": "lldp", "mode": "tx-and-rx"}


def _syslog(rack: Rack, switch: Switch) -> Part:
    head = next(iter(rack.nodes.values()))
    address = str(head.address if switch.syslog == "head" else switch.syslog)
    action = Wanted((LOG_NAME,), {"target": "remote", "remote": address, "remote-log-format": "syslog"})
    rules = tuple(Wanted((topic, LOG_NAME), {"disabled": "no"}) for topic in TOPICS)
    return Part("remote log", (Share(LOG_ACTION, (action,)), Share(LOGGING, rules)))


def _snmp(switch: Switch) -> Part:
    """Off, or version 3 with authentication and encryption, and nothing for whoever knows the word public."""
    if switch.snmp is False or switch.snmp is None:
        return _one("SNMP", SNMP, enabled="no")
    fields: dict[str, Value] = {
        "security": "private",
        "read-access": "yes",
        "write-access": "no",
        "authentication-protocol": "SHA1",
        "encryption-protocol": "AES",
        "authentication-password": switch.snmp.authentication,
        "encryption-password": switch.snmp.encryption,
        "disabled": "no",
    }
    if switch.management:
        fields["addresses"] = ",".join(map(str, switch.management))
    communities = (Wanted((switch.snmp.user,), fields), Wanted(("public",), {"disabled": "yes"}))
    enabled = Wanted((), {"trap-version": "3", "trap-community": switch.snmp.user, "enabled": "yes"})
    return Part("SNMP", (Share(COMMUNITY, communities), Share(SNMP, (enabled,))))
