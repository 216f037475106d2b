"""Facts of a switch, and the keys of rack.yaml that describe it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from core.hardware import registry
from core.hardware.cage_kinds import cage_kind, cage_of
from core.hardware.fec import allowed_fec, default_fec
from core.hardware.switch_model import Breakout, CageKind
from core.model import Switch
from core.model.errors import printable_line, truncate
from core.routeros.diff import diff
from core.routeros.errors import UnreadableError
from core.routeros.menus import (
    BANDWIDTH_SERVER,
    BONDING,
    BRIDGE,
    BRIDGE_PORT,
    CLOCK,
    DISCOVERY,
    DNS,
    ETHERNET,
    GROUP,
    IDENTITY,
    LOG_ACTION,
    LOGGING,
    MAC_PING,
    MAC_TELNET,
    MAC_WINBOX,
    NTP_CLIENT,
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
from switch.cages import NEGOTIATED, describe, lanes_of
from switch.desired.access import CLOSED, GUARDED, READER_GROUP
from switch.desired.lossless import Policy, policy_parts
from switch.desired.menu_rows import DeviceContext, QosNames, bonds_of
from switch.desired.system import LOG_NAME, TOPICS
from switch.differences import describe_differences
from switch.flags import is_yes

_BETWEEN = "and a cable between two switches cannot be declared (docs/decisions/0027-one-switch.md)"
POLICIES: tuple[Policy, ...] = ("none", "pause", "ecn", "roce")
"""The policies that a run writes; the one that would change nothing is the one that is there."""
SHOWN = 4
"""Differences from the nearest policy that are listed; more of them are counted."""


@dataclass(frozen=True)
class Neighbour:
    """Whom a switch knows by a discovery protocol: on which of its interfaces (factory name), and by which name."""

    interface: str
    mac: str
    identity: str


@dataclass(frozen=True)
class SwitchFacts:
    """One switch. `hosts`: the interface (factory name) behind which it hears each MAC address (lower case).
    `monitor`: the monitor of each of those interfaces. `uplinks`: the other switch behind an interface."""

    name: str
    reading: SwitchReading
    hosts: Mapping[str, str] = field(default_factory=dict)
    neighbours: tuple[Neighbour, ...] = ()
    monitor: Mapping[str, Row] = field(default_factory=dict)
    uplinks: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The name that it has itself, by which its neighbours know it; "" for none."""
        rows = self.reading.tables.get(IDENTITY.path, ())
        return rows[0].get("name", "") if rows else ""


@dataclass(frozen=True)
class Keys:
    """What describes a switch: keys of rack.yaml with their values, a note for some of them, what has no key, and
    `missing`: the values that the file needs and rack.yaml does not take, or that were not read."""

    data: Mapping[str, Any]
    notes: Mapping[str, str]
    unrepresentable: tuple[Gap, ...]
    missing: tuple[Gap, ...] = ()


@dataclass(frozen=True)
class FoundCage:
    """A cage with a split: its name, its keys, its configuration in words, and the rows of its legs."""

    name: str
    keys: Mapping[str, str]
    words: str
    legs: tuple[Row, ...]


def factory_names(reading: SwitchReading) -> dict[str, str]:
    """The name from the factory of each interface by the name that it has now."""
    return {row["name"]: name for name, row in reading.ethernet.items()}


def keys(facts: SwitchFacts, *, live: bool = True) -> Keys:
    """Return the keys of a switch except those of its endpoint. `live`: with the values that its legs have now; else
    every cage that has a split is for the file, which declares other values, and its legs are forced."""
    maker = _Maker(facts, live=live)
    return Keys(dict(maker.all()), maker.notes, tuple(maker.unrepresentable), tuple(maker.missing))


class _Maker:
    def __init__(self, facts: SwitchFacts, *, live: bool) -> None:
        self.facts, self.reading, self.live = facts, facts.reading, live
        self.notes: dict[str, str] = {}
        self.unrepresentable: list[Gap] = []
        self.missing: list[Gap] = []
        self.bonds = bonds_of(self.reading)
        self.heard = set(facts.hosts.values())

    def all(self) -> Iterator[tuple[str, Any]]:
        board = self.only(ROUTERBOARD)
        yield "model", board.get("model", "")
        yield from self._accepted_entry("serial", board.get("serial-number"))
        yield from self._accepted_entry("identity", self.only(IDENTITY).get("name"))
        yield from self._leg_entries()
        yield from self._describe_services()
        yield from self._system_entries()

    def only(self, menu: Menu) -> Row:
        """The row of a menu that has one; empty when the switch lacks the menu."""
        rows = () if menu.path in self.reading.absent else self.reading.tables.get(menu.path, ())
        return rows[0] if rows else {}

    def rows(self, menu: Menu) -> tuple[Row, ...]:
        return () if menu.path in self.reading.absent else self.reading.tables.get(menu.path, ())

    def add_gap(self, key: str, why: str) -> None:
        self.unrepresentable.append(Gap(("switches", self.facts.name, key), why))

    def _accepted_entry(self, key: str, value: object) -> Iterator[tuple[str, Any]]:
        """An optional key with a value that rack.yaml takes; another value is a gap."""
        if value in (None, ""):
            return
        if why := _explain_refusal(key, value):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            self.add_gap(key, f"{truncate(shown)}: {why}; left out, so a run leaves it alone")
        else:
            yield key, value

    # --- cages and their legs ----------------------------------------------------------------------------------------

    def _leg_entries(self) -> Iterator[tuple[str, Any]]:
        """The cages, and what all their legs share: it is read from the legs on which nodes were heard."""
        self._not_declarable()
        found = list(self._found_cages())
        legs = [row for name, row in self.reading.ethernet.items() if name in self.heard and cage_of(name)]
        legs = [row for row in legs if row["name"] not in self.bonds] or [row for cage in found for row in cage.legs]
        shared = _SharedKeys(self.reading, self.bonds, legs)
        near = [cage for cage in found if self.heard & {row["default-name"] for row in cage.legs}]
        policy = self._find_lossless_policy(shared, near or found) if legs else "leave"
        cages = [
            cage for cage in found if not self.live or cage in near or self._agrees_with_legs(cage, shared, policy)
        ]
        yield "cages", {cage.name: dict(cage.keys) for cage in cages}
        every = [row for cage in cages for row in cage.legs]
        for key in ("mtu", "l2mtu") if legs else ():
            yield from self._size_entry(key, shared, every)
        yield from self._bridge_entry(shared, every)
        if legs:
            yield "lossless", policy
        for row in every:
            if "," in row["name"]:
                self.add_gap(
                    "cages",
                    f"leg {row['default-name']} is called {truncate(row['name'])}, and a list of RouterOS cannot hold "
                    "a name with a comma: rename it before fabric.vlans is declared",
                )

    def _not_declarable(self) -> None:
        """What rack.yaml does not know: cables to other switches, bonds, and MLAG."""
        for name, other in self.facts.uplinks.items():
            if cage := cage_of(name):
                self.add_gap("cages", f"{name} leads to {truncate(other)}, {_BETWEEN}; {cage} is left alone")
        for bond in dict.fromkeys(self.bonds.values()):
            slaves = [name for name, one in self.bonds.items() if one == bond]
            factory = [name for name, row in self.reading.ethernet.items() if row["name"] in slaves]
            end = self.facts.uplinks.get(bond)
            leads = f"; it leads to {truncate(end)}, {_BETWEEN}" if end else ""
            self.add_gap(
                "cages",
                f"{' and '.join(map(truncate, factory or slaves))} are slaves of the bond {truncate(bond)}, and "
                f"rack.yaml has no bonds: their cages are left alone{leads}",
            )
        for row in self.rows(BRIDGE):
            name, peer = truncate(row.get("name", "")), row.get("mlag-peer-port", "none")
            if peer not in ("", "none"):
                self.add_gap(
                    "bridge", f"{name} has the MLAG peer port {truncate(peer)}: a run refuses to write to this switch"
                )
            elif row.get("mlag-priority", "128") != "128":
                self.add_gap(
                    "bridge",
                    f"{name} has mlag-priority {truncate(row['mlag-priority'])} and no mlag-peer-port, so MLAG is off; "
                    "a run leaves it alone",
                )
        for row in self.rows(BONDING):
            if row.get("mlag-id"):
                self.add_gap(
                    "bridge",
                    f"bond {truncate(row.get('name', ''))} has mlag-id {truncate(row['mlag-id'])}: it is shared with a "
                    "second switch (MLAG), and a run refuses to write to this one",
                )

    def _found_cages(self) -> Iterator[FoundCage]:
        """The cages whose legs have a split, forced or negotiated; other configurations are gaps."""
        hardware = registry.find(self.only(ROUTERBOARD).get("model", ""))
        for cage, kind in hardware.cages.items() if hardware else ():
            lanes = lanes_of(cage)
            if any(name not in self.reading.ethernet for name in lanes):
                continue
            rows = [self.reading.ethernet[name] for name in lanes]
            if any(row["name"] in self.bonds or row["default-name"] in self.facts.uplinks for row in rows):
                continue
            words, heard = describe(cage, self.reading.ethernet), [name for name in lanes if name in self.heard]
            split, _, medium = words.partition(" ")
            if split in kind.breakouts and medium in ("copper", "optic"):
                breakout = kind.breakouts[split]
                legs = tuple(rows[lane - 1] for lane in breakout.first_lanes)
                default = default_fec(breakout, medium)
                fec = self._fec_entry(cage, breakout, default, legs)
                yield FoundCage(cage, {"split": split, "medium": medium, **fec}, words, legs)
            elif words == NEGOTIATED and heard:
                yield from self._describe_negotiated_cage(cage, kind, rows, heard)
            elif heard:
                self.add_gap(
                    "cages",
                    f"nodes are on {cage}, and it is {words}, which is not a split with all its legs; to declare one, "
                    "write its split, and a run restarts the cage with it",
                )
            elif words != NEGOTIATED:
                self.add_gap("cages", f"{cage} is {truncate(words)}, which is not a split; it is left alone")

    def _fec_entry(self, cage: str, split: Breakout, default: str, legs: Iterable[Row]) -> dict[str, str]:
        """The FEC of a cage's legs where it is not that which rack.yaml means without the key; else nothing."""
        found, allowed = sorted({row.get("fec-mode", "auto") for row in legs}), allowed_fec(split)
        if len(found) == 1 and found[0] in allowed:
            return {} if found[0] == default else {"fec": found[0]}
        modes, one = truncate(", ".join(found)), " or ".join(allowed)
        self.add_gap(
            "cages", f"{cage} has fec-mode {modes}, and legs of {split.name} need one mode, {one}; a run sets {default}"
        )
        return {}

    def _describe_negotiated_cage(
        self, cage: str, kind: CageKind, rows: Sequence[Row], heard: list[str]
    ) -> Iterator[FoundCage]:
        """A cage that nodes were heard on, and that is forced to nothing: by what its links came up at. Where several
        splits have such legs, it is the one whose legs all have a node."""
        rates = {gbps(self.facts.monitor.get(name, {}).get("rate")) for name in heard} - {None}
        first = {number for number, row in enumerate(rows, start=1) if row["default-name"] in heard}
        fits = [split for split in kind.breakouts.values() if {split.gbps} == rates and first <= set(split.first_lanes)]
        exact = [split for split in fits if first == set(split.first_lanes)]
        if not exact and len(fits) != 1:
            came_up = ", ".join(f"{rate:g}G" for rate in sorted(filter(None, rates))) or "no speed that it reports"
            self.add_gap(
                "cages",
                f"{cage} negotiates its speed, and what came up on {', '.join(heard)} ({came_up}) is not a split of "
                "it; "
                "declare its split",
            )
            return
        split = (exact or fits)[0]
        legs = tuple(rows[lane - 1] for lane in split.first_lanes)
        kept = {"speed": "negotiated", **self._fec_entry(cage, split, "auto", legs)} if self.live else {}
        keys = {"split": split.name, **kept}
        yield FoundCage(cage, keys, f"{split.name}, {NEGOTIATED}", legs)

    def _agrees_with_legs(self, cage: FoundCage, shared: _SharedKeys, policy: Policy) -> bool:
        """Whether a cage without nodes is declared: its legs have what the legs of the nodes have. Another one would be
        changed by a run, and is left alone."""
        others = shared.differences(cage.legs)
        if not others and any(policy_differences(policy, _leg_speeds([cage]), self.reading)):
            others = [f"policy is not {policy}"]
        if not others:
            return True
        self.add_gap(
            "cages",
            f"{cage.name} is {cage.words} and no node was heard on it; its {', its '.join(others)}, which the legs of "
            "the nodes have otherwise: it is left alone",
        )
        return False

    def _size_entry(self, key: str, shared: _SharedKeys, every: Iterable[Row]) -> Iterator[tuple[str, int]]:
        common = shared.common(key)
        if not common.isdecimal():
            self.missing.append(Gap(("switches", self.facts.name, key), f"the legs report no {key}"))
            return
        yield key, int(common)
        for row in every:
            if (value := shared.value(key, row)) != common:
                name = row["default-name"]
                self.add_gap(key, f"{name} has {truncate(value)}, most legs have {common}; a run sets {common}")
        if why := _explain_refusal(key, int(common)):
            self.missing.append(Gap(("switches", self.facts.name, key), f"{common}: {why}"))

    def _bridge_entry(self, shared: _SharedKeys, every: Iterable[Row]) -> Iterator[tuple[str, str]]:
        """The bridge that the legs are in; where they are in none, the one with most ports."""
        common, every = shared.common("bridge"), list(every)
        if not common:
            bridges = [row.get("name", "") for row in self.rows(BRIDGE)]
            ports = Counter(row.get("bridge", "") for row in self.rows(BRIDGE_PORT))
            common = max(bridges, key=lambda name: ports[name], default="bridge")
        yield "bridge", common
        outside = [row["default-name"] for row in every if shared.value("bridge", row) != common]
        if outside:
            names = ", ".join(outside)
            self.add_gap("bridge", f"{names}: not in {truncate(common)}; a run puts each of them there")
        if why := _explain_refusal("bridge", common):
            self.missing.append(
                Gap(("switches", self.facts.name, "bridge"), f"{truncate(common)}: {why}; rename it on the switch")
            )

    def _find_lossless_policy(self, shared: _SharedKeys, cages: Sequence[FoundCage]) -> Policy:
        """The policy that would change nothing on any leg; `leave` and a gap where none is that."""
        legs = _leg_speeds(cages)
        rows = [row for cage in cages for row in cage.legs] or shared.legs
        pauses = {(row.get("rx-flow-control", "off"), row.get("tx-flow-control", "off")) for row in rows}
        differing: dict[Policy, list[str]] = {}
        for policy in POLICIES:
            wanted = ("on", "on") if policy == "pause" else ("off", "off")
            pause = [] if pauses == {wanted} else [f"pause frames are not {wanted[0]}"]
            differing[policy] = [*pause, *policy_differences(policy, legs, self.reading)]
            if not differing[policy]:
                return policy
        nearest = min(differing, key=lambda policy: len(differing[policy]))
        lines = differing[nearest]
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        self.add_gap(
            "lossless",
            f"it is none of none, pause, ecn and roce, so it is left as it is; against {nearest}: "
            f"{'; '.join(map(printable_line, lines[:SHOWN]))}{more}",
        )
        return "leave"

    # --- who may come in ---------------------------------------------------------------------------------------------

    def _describe_services(self) -> Iterator[tuple[str, Any]]:
        services = {row.get("name", ""): row for row in self.rows(SERVICE)}
        limits = {services[name].get("address", "") for name in GUARDED if name in services}
        open_ = [name for name in (*CLOSED, "api") if name in services and not is_yes(services[name], "disabled")]
        servers = [
            menu.path
            for menu, off in ((MAC_TELNET, "none"), (MAC_WINBOX, "none"))
            if self.only(menu).get("allowed-interface-list", off) != off
        ] + [menu.path for menu in (MAC_PING, BANDWIDTH_SERVER) if is_yes(self.only(menu), "enabled")]
        if len(limits) == 1 and limits != {""} and not open_ and not servers:
            yield from self._accepted_entry("management", sorted(canonical(ValueKind.LIST, limits.pop()).split(",")))
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
            yield from self._accepted_entry(
                "reader",
                {"user": readers[0]["name"], "password": {"env": "CRS812_READER_PASSWORD"}}
                | ({"port": int(port)} if port not in ("443", "") else {}),
            )
            self.notes["reader"] = "a switch reports no password: write a reference to it"

    # --- identity, time, names, discovery, log ------------------------------------------------------------------------

    def _system_entries(self) -> Iterator[tuple[str, Any]]:
        clock = self.only(CLOCK)
        if clock.get("time-zone-name") and not is_yes(clock, "time-zone-autodetect", "yes"):
            yield from self._accepted_entry("time_zone", clock["time-zone-name"])
        ntp = self.only(NTP_CLIENT)
        if is_yes(ntp, "enabled"):
            yield from self._parse_servers("ntp", ntp.get("servers", ""))
        yield from self._parse_servers("dns", self.only(DNS).get("servers", ""))
        found = self.only(DISCOVERY)
        lldp = (found.get("discover-interface-list"), found.get("protocol"), found.get("mode", "tx-and-rx"))
        if lldp[0] == "none":
            yield "lldp", False
        elif lldp == ("all", "lldp", "tx-and-rx"):
            yield "lldp", True
        yield from self._syslog_entry()
        snmp = self.only(SNMP)
        if is_yes(snmp, "enabled"):
            self.add_gap(
                "snmp", "it is on; its passwords cannot be read, so the key is left out and a run leaves it alone"
            )
        elif snmp:
            yield "snmp", False

    def _parse_servers(self, key: str, text: str) -> Iterator[tuple[str, list[str]]]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if names and all(map(_is_address, names)):
            yield key, names
        elif names:
            self.add_gap(key, f"{truncate(text)} is not a list of IPv4 addresses; left out, so a run leaves it alone")

    def _syslog_entry(self) -> Iterator[tuple[str, str]]:
        remote = {row.get("name"): row for row in self.rows(LOG_ACTION) if row.get("target") == "remote"}
        used = {row.get("action") for row in self.rows(LOGGING) if not is_yes(row, "disabled")} & set(remote)
        action = remote.get(LOG_NAME)
        topics = {row.get("topics") for row in self.rows(LOGGING) if row.get("action") == LOG_NAME}
        if action and set(TOPICS) <= topics and _is_address(action.get("remote", "")):
            yield "syslog", action["remote"]
            used -= {LOG_NAME}
        for name in sorted(map(str, used)):
            self.add_gap(
                "syslog", f"the log also goes to {truncate(remote[name].get('remote'))} by action {truncate(name)}"
            )


class _SharedKeys:
    """What all legs of a switch share in rack.yaml, as the legs of `legs` have it."""

    def __init__(self, reading: SwitchReading, bonds: Mapping[str, str], legs: Sequence[Row]) -> None:
        self.legs, self._bonds = legs, bonds
        rows = () if BRIDGE_PORT.path in reading.absent else reading.tables.get(BRIDGE_PORT.path, ())
        self._bridges = {row.get("interface", ""): row.get("bridge", "") for row in rows}

    def value(self, key: str, row: Row) -> str:
        """The value of a leg; "" for none."""
        if key == "bridge":
            return self._bridges.get(self._bonds.get(row["name"], row["name"]), "")
        if key == "pause frames":
            return f"{row.get('rx-flow-control', 'off')}/{row.get('tx-flow-control', 'off')}"
        return row.get(key, ETHERNET.fields[key].default or "")

    def common(self, key: str) -> str:
        """The value that most legs have."""
        values = Counter(value for row in self.legs if (value := self.value(key, row)))
        return values.most_common(1)[0][0] if values else ""

    def differences(self, legs: Iterable[Row]) -> list[str]:
        """What other legs have otherwise, like "mtu is 1584"."""
        found = {
            f"{key} is {truncate(value) if (value := self.value(key, row)) else 'none'}"
            for row in legs
            for key in ("mtu", "l2mtu", "bridge", "pause frames")
            if self.value(key, row) != self.common(key)
        }
        return sorted(found, key=lambda text: (text.startswith("l2mtu"), text))


def _leg_speeds(cages: Iterable[FoundCage]) -> dict[str, int]:
    """The Gb/s of each leg of some cages, by its present name."""
    return {row["name"]: cage_kind(cage.name).breakouts[cage.keys["split"]].gbps for cage in cages for row in cage.legs}


def policy_differences(policy: Policy, legs: Mapping[str, int], reading: SwitchReading) -> Iterator[str]:
    """What a run with a policy would change in the tables of the chip, in words. Nothing for legs that are unknown."""
    for part in policy_parts(policy, legs, DeviceContext(qos=QosNames.of(reading))) if legs else ():
        for share in part.shares:
            if share.menu.path in reading.absent and share.optional:
                continue
            try:
                changes = diff(share.menu, share.rows, reading.rows(share.menu))
            except UnreadableError as fault:
                yield str(fault)
                continue
            yield from (text for change in changes for text in describe_differences(change))


def _explain_refusal(key: str, value: object) -> str:
    """Why rack.yaml does not take a value for a key of a switch; "" when it does."""
    spec = Switch.model_fields[key]
    kind: Any = Annotated[spec.annotation, *spec.metadata] if spec.metadata else spec.annotation
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as fault:
        return str(fault.errors()[0]["msg"])
    return ""


def www_ssl_port(facts: SwitchFacts) -> int | None:
    """Return the TCP port of the service for REST where it is not the default, 443."""
    ports = [row.get("port", "") for row in facts.reading.rows(SERVICE) if row.get("name") == "www-ssl"]
    return int(ports[0]) if ports and ports[0].isdecimal() and ports[0] != "443" else None


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
