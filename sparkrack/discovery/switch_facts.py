"""Facts of a switch, and the keys of rack.yaml that describe it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from core.hardware import registry
from core.hardware.fec import allowed_fec, default_fec
from core.hardware.switch_model import Breakout, CageKind
from core.model.errors import truncate
from core.routeros.menus import (
    BANDWIDTH_SERVER,
    BRIDGE_PORT,
    CLOCK,
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
    QOS_PORT,
    ROUTERBOARD,
    SERVICE,
    SNMP,
    USER,
    Menu,
    Row,
)
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind, canonical, gbps
from sparkrack.discovery.draft import Gap
from switch.cages import describe, lanes_of
from switch.desired.access import CLOSED, GUARDED, READER_GROUP
from switch.desired.lossless import PFC_NAME
from switch.desired.system import LOG_NAME, TOPICS

AUTO = "auto-negotiated"


@dataclass(frozen=True)
class Neighbour:
    """Whom a switch knows by a discovery protocol: on which of its interfaces (factory name), and by which name."""

    interface: str
    mac: str
    identity: str


@dataclass(frozen=True)
class SwitchFacts:
    """One switch. `hosts`: the interface (factory name) behind which it hears each MAC address (lower case).
    `monitor`: the monitor of each of those interfaces."""

    name: str
    reading: SwitchReading
    hosts: Mapping[str, str] = field(default_factory=dict)
    neighbours: tuple[Neighbour, ...] = ()
    monitor: Mapping[str, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Keys:
    """What describes a switch: keys of rack.yaml with their values, a note for some of them, and what has no key."""

    data: Mapping[str, Any]
    notes: Mapping[str, str]
    unrepresentable: tuple[Gap, ...]


def factory_names(reading: SwitchReading) -> dict[str, str]:
    """The name from the factory of each interface by the name that it has now."""
    return {row["name"]: name for name, row in reading.ethernet.items()}


def keys(facts: SwitchFacts) -> Keys:
    """Return the keys of a switch except those of its endpoint."""
    maker = _Maker(facts)
    return Keys(dict(maker.all()), maker.notes, tuple(maker.unrepresentable))


class _Maker:
    def __init__(self, facts: SwitchFacts) -> None:
        self.facts, self.reading = facts, facts.reading
        self.notes: dict[str, str] = {}
        self.unrepresentable: list[Gap] = []
        self.masters: list[Row] = []

    def all(self) -> Iterator[tuple[str, Any]]:
        board = self.only(ROUTERBOARD)
        yield "model", board.get("model", "")
        if board.get("serial-number"):
            yield "serial", board["serial-number"]
        if self.only(IDENTITY).get("name"):
            yield "identity", self.only(IDENTITY)["name"]
        cages = dict(self._cages())
        yield "cages", cages
        for name, default in (("mtu", 9000), ("l2mtu", 9500)):
            yield name, self._size(name, default)
        yield "bridge", self._bridge()
        yield "lossless", self._lossless()
        yield from self._doors()
        yield from self._system()

    def only(self, menu: Menu) -> Row:
        """The row of a menu that has one; empty when the switch lacks the menu."""
        rows = () if menu.path in self.reading.absent else self.reading.tables.get(menu.path, ())
        return rows[0] if rows else {}

    def rows(self, menu: Menu) -> tuple[Row, ...]:
        return () if menu.path in self.reading.absent else self.reading.tables.get(menu.path, ())

    def add_gap(self, key: str, why: str) -> None:
        self.unrepresentable.append(Gap(("switches", self.facts.name, key), why))

    # --- cages -------------------------------------------------------------------------------------------------------

    def _cages(self) -> Iterator[tuple[str, dict[str, str]]]:
        learned = Counter(self.facts.hosts.values())
        hardware = registry.find(self.only(ROUTERBOARD).get("model", ""))
        for cage, kind in hardware.cages.items() if hardware else ():
            lanes = lanes_of(cage)
            if any(name not in self.reading.ethernet for name in lanes):
                continue
            words = describe(cage, self.reading.ethernet)
            split, _, medium = words.partition(" ")
            if split in kind.breakouts and medium in ("copper", "optic"):
                first = kind.breakouts[split].first_lanes
                masters = [self.reading.ethernet[lanes[lane - 1]] for lane in first]
                fec = self._fec(cage, kind.breakouts[split], medium, masters)
                yield cage, {"split": split, "medium": medium, **({"fec": fec} if fec else {})}
                self.masters += masters
            elif words == AUTO and any(learned[name] for name in lanes):
                yield from self._negotiated(cage, kind, lanes)
            elif words != AUTO:
                self.add_gap("cages", f"{cage} is {truncate(words)}, which is no split; it is left alone")

    def _fec(self, cage: str, split: Breakout, medium: str, masters: Iterable[Row]) -> str:
        """The FEC of a cage's legs where it is not that which rack.yaml means without the key; else empty."""
        found, default = sorted({row.get("fec-mode", "auto") for row in masters}), default_fec(split, medium)
        allowed = allowed_fec(split)
        if len(found) == 1 and found[0] in allowed:
            return "" if found[0] == default else found[0]
        modes, one = truncate(", ".join(found)), " or ".join(allowed)
        self.add_gap(
            "cages", f"{cage} has fec-mode {modes}, and legs of {split.name} need one mode, {one}; a run sets {default}"
        )
        return ""

    def _negotiated(self, cage: str, kind: CageKind, lanes: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
        """A cage that something is connected to, and that is forced to nothing: by what its link came up at."""
        rates = {gbps(self.facts.monitor.get(name, {}).get("rate")) for name in lanes if name in self.facts.monitor}
        rates.discard(None)
        found = [split for split in kind.breakouts.values() if {split.gbps} == rates]
        if found:
            yield cage, {"split": found[0].name, "medium": "copper"}
            self.add_gap("cages", f"{cage} negotiates its speed, and rack.yaml knows forced ones; a run forces it")
        else:
            self.add_gap(
                "cages", f"{cage} negotiates its speed, and what came up there is no split of it; declare its split"
            )

    def _size(self, name: str, default: int) -> int:
        sizes = Counter(int(row[name]) for row in self.masters if row.get(name, "").isdecimal())
        return sizes.most_common(1)[0][0] if sizes else default

    def _bridge(self) -> str:
        """The bridge that has the legs; else the only one, or the name from the factory."""
        names = {row["name"] for row in self.masters}
        ports = [row.get("bridge", "") for row in self.rows(BRIDGE_PORT)]
        legs = [row.get("bridge", "") for row in self.rows(BRIDGE_PORT) if row.get("interface") in names]
        return Counter(legs or ports or ["bridge"]).most_common(1)[0][0]

    def _lossless(self) -> str:
        names = {row["name"] for row in self.masters}
        if {row.get("pfc") for row in self.rows(QOS_PORT) if row.get("name") in names} == {PFC_NAME}:
            return "roce"
        pauses = {(row.get("rx-flow-control", "off"), row.get("tx-flow-control", "off")) for row in self.masters}
        if pauses == {("on", "on")}:
            return "pause"
        if pauses - {("off", "off")}:
            self.add_gap("lossless", "some legs pause and some do not, or in one direction only")
        return "none"

    # --- who may come in ---------------------------------------------------------------------------------------------

    def _doors(self) -> Iterator[tuple[str, Any]]:
        services = {row.get("name", ""): row for row in self.rows(SERVICE)}
        limits = {services[name].get("address", "") for name in GUARDED if name in services}
        open_ = [name for name in (*CLOSED, "api") if name in services and not flag(services[name], "disabled")]
        servers = [
            menu.path
            for menu, off in ((MAC_TELNET, "none"), (MAC_WINBOX, "none"))
            if self.only(menu).get("allowed-interface-list", off) != off
        ] + [menu.path for menu in (MAC_PING, BANDWIDTH_SERVER) if flag(self.only(menu), "enabled")]
        if len(limits) == 1 and limits != {""} and not open_ and not servers:
            yield "management", sorted(canonical(ValueKind.LIST, limits.pop()).split(","))
        else:
            reasons = [*(f"{name} is on" for name in (*open_, *servers))]
            if limits - {""} or len(limits) > 1:
                reasons.append("api-ssl, ssh and winbox are not limited to the same subnets")
            if limits - {""}:
                self.add_gap("management", f"{', '.join(reasons)}; left out, so a run leaves the services alone")
        readers = [row for row in self.rows(USER) if row.get("group") == READER_GROUP]
        policies = [row for row in self.rows(GROUP) if row.get("name") == READER_GROUP]
        if len(readers) == 1 and policies:
            port = services.get("www-ssl", {}).get("port", "443")
            yield (
                "reader",
                {"user": readers[0]["name"], "password": {"env": "CRS812_READER_PASSWORD"}}
                | ({"port": int(port)} if port not in ("443", "") else {}),
            )
            self.notes["reader"] = "a switch reports no password: write a reference to it"

    # --- identity, time, names, discovery, log ------------------------------------------------------------------------

    def _system(self) -> Iterator[tuple[str, Any]]:
        clock = self.only(CLOCK)
        if clock.get("time-zone-name") and not flag(clock, "time-zone-autodetect", "yes"):
            yield "time_zone", clock["time-zone-name"]
        ntp = self.only(NTP_CLIENT)
        if flag(ntp, "enabled"):
            yield from self._servers("ntp", ntp.get("servers", ""))
        yield from self._servers("dns", self.only(DNS).get("servers", ""))
        found = self.only(DISCOVERY)
        lldp = (found.get("discover-interface-list"), found.get("protocol"), found.get("mode", "tx-and-rx"))
        if lldp[0] == "none":
            yield "lldp", False
        elif lldp == ("all", "lldp", "tx-and-rx"):
            yield "lldp", True
        yield from self._syslog()
        snmp = self.only(SNMP)
        if flag(snmp, "enabled"):
            self.add_gap(
                "snmp", "it is on; its passwords cannot be read, so the key is left out and a run leaves it alone"
            )
        elif snmp:
            yield "snmp", False

    def _servers(self, key: str, text: str) -> Iterator[tuple[str, list[str]]]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if names and all(map(_is_address, names)):
            yield key, names
        elif names:
            self.add_gap(key, f"{truncate(text)} is no list of IPv4 addresses; left out, so a run leaves it alone")

    def _syslog(self) -> Iterator[tuple[str, str]]:
        remote = {row.get("name"): row for row in self.rows(LOG_ACTION) if row.get("target") == "remote"}
        used = {row.get("action") for row in self.rows(LOGGING) if not flag(row, "disabled")} & set(remote)
        action = remote.get(LOG_NAME)
        topics = {row.get("topics") for row in self.rows(LOGGING) if row.get("action") == LOG_NAME}
        if action and set(TOPICS) <= topics and _is_address(action.get("remote", "")):
            yield "syslog", action["remote"]
            used -= {LOG_NAME}
        for name in sorted(map(str, used)):
            self.add_gap(
                "syslog", f"the log also goes to {truncate(remote[name].get('remote'))} by action {truncate(name)}"
            )


def www_ssl_port(facts: SwitchFacts) -> int | None:
    """Return the TCP port of the service for REST where it is not the default, 443."""
    ports = [row.get("port", "") for row in facts.reading.rows(SERVICE) if row.get("name") == "www-ssl"]
    return int(ports[0]) if ports and ports[0].isdecimal() and ports[0] != "443" else None


def flag(row: Row, name: str, default: str = "no") -> bool:
    """Return whether a field is yes; any other value is no."""
    try:
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    try:
        return not IPv4Address(text).is_unspecified
    except ValueError:
        return False


# claim: discovery.neighbor-words
def neighbours(rows: Iterable[Row], names: Mapping[str, str]) -> tuple[Neighbour, ...]:
    """The rows of `/ip/neighbor`; `names`: the factory name of each interface by its own."""
    found = []
    for row in rows:
        # A neighbour behind a bridge is printed with both, "ether1,bridge".
        interface = row.get("interface", "").split(",")[0]
        mac = row.get("mac-address", "").lower()
        if mac:
            found.append(Neighbour(names.get(interface, interface), mac, row.get("identity", "")))
    return tuple(found)
