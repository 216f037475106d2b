"""Identity, time, and log and SNMP receivers of the unit."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from core.routeros.diff import DesiredRow, Value
from core.routeros.menus import CLOCK, COMMUNITY, DISCOVERY, DNS, IDENTITY, LOG_ACTION, LOGGING, NTP_CLIENT, SNMP, Menu
from switch.desired.menu_rows import ChangeGroup, MenuDesired

if TYPE_CHECKING:
    from core.model import Rack, Switch

LOG_NAME = "sparkrack"
TOPICS = ("info", "error", "warning", "critical")
"""Topics that are logged remotely: those that the unit logs to its own memory by default."""


def parts(rack: Rack, switch: Switch) -> Iterator[ChangeGroup]:
    """One part for each key of rack.yaml that is there; an absent key leaves the menu alone."""
    if switch.identity is not None:
        yield _single_row_group("identity", IDENTITY, name=switch.identity)
    if switch.time_zone is not None:
        yield _single_row_group(
            "time zone", CLOCK, **{"time-zone-autodetect": "no", "time-zone-name": switch.time_zone}
        )
    if switch.ntp is not None:
        yield _single_row_group(
            "time servers", NTP_CLIENT, enabled="yes", mode="unicast", servers=_join_addresses(switch.ntp)
        )
    if switch.dns is not None:
        yield _single_row_group("name servers", DNS, servers=_join_addresses(switch.dns))
    if switch.lldp is not None:
        yield _single_row_group("neighbour discovery", DISCOVERY, **_discovery_settings(switch.lldp))
    if switch.syslog is not None:
        yield _syslog_group(rack, switch)
    if switch.snmp is not None:
        yield _snmp_group(switch)


def _single_row_group(title: str, menu: Menu, **fields: str) -> ChangeGroup:
    return ChangeGroup(title, (MenuDesired(menu, (DesiredRow((), fields),)),))


def _join_addresses(addresses: tuple[IPv4Address, ...]) -> str:
    return ",".join(map(str, addresses))


def _discovery_settings(lldp: bool) -> dict[str, str]:
    """LLDP only, which a node's lldpd supports too. CDP and MNDP disclose the unit's version to every neighbour."""
    if not lldp:
        return {"discover-interface-list": "none"}
    return {"discover-interface-list": "all", "protocol": "lldp", "mode": "tx-and-rx"}


def _syslog_group(rack: Rack, switch: Switch) -> ChangeGroup:
    head = next(iter(rack.nodes.values()))
    address = str(head.address if switch.syslog == "head" else switch.syslog)
    action = DesiredRow((LOG_NAME,), {"target": "remote", "remote": address, "remote-log-format": "syslog"})
    rules = tuple(DesiredRow((topic, LOG_NAME), {"disabled": "no"}) for topic in TOPICS)
    return ChangeGroup("remote log", (MenuDesired(LOG_ACTION, (action,)), MenuDesired(LOGGING, rules)))


def _snmp_group(switch: Switch) -> ChangeGroup:
    """Off, or version 3 with authentication and encryption, and no access with the community public."""
    if switch.snmp is False or switch.snmp is None:
        return _single_row_group("SNMP", SNMP, enabled="no")
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
    communities = (DesiredRow((switch.snmp.user,), fields), DesiredRow(("public",), {"disabled": "yes"}))
    enabled = DesiredRow((), {"trap-version": "3", "trap-community": switch.snmp.user, "enabled": "yes"})
    return ChangeGroup("SNMP", (MenuDesired(COMMUNITY, communities), MenuDesired(SNMP, (enabled,))))
