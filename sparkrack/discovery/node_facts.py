"""Facts of a node, parsed from its answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Interface
from typing import TypeVar

from core.hardware import gb10
from core.model import Half
from core.model.errors import printable_line, truncate
from core.model.role import AdoptedOption, roles
from core.probes.links import IpLink, parse_ip_links, parse_ip_rows
from core.probes.protocol import Answer
from roles.driver.desired import NodePackage
from roles.driver.desired import packages as parse_packages
from roles.images.desired import LocalImages, local_images
from roles.preflight.dmi import vendor_of
from roles.time.desired import servers_in_use
from sparkrack.discovery.engine_containers import Engines, parse_engines

Value = TypeVar("Value")
TIME_SERVERS = "time-servers"
"""The question for the time servers of a node, which `init` asks and `adopt` has no use for."""


ADOPTED: Mapping[str, AdoptedOption] = {
    f"{role.key}.{option.option}": option for role in roles() for option in role.adopt
}
"""What roles can read of their sections, by the path in rack.yaml, which is also the name of the question."""


@dataclass(frozen=True)
class HalfFacts:
    """One half of a port. `up`: it is switched on and has a carrier. `addresses` are its own or those of the VLAN on
    it, link-local ones left out; `vlan`: that VLAN's number; `device`: what holds the addresses. `mtu` in bytes."""

    mac: str
    up: bool
    mtu: int
    addresses: tuple[IPv4Interface, ...] = ()
    vlan: int | None = None
    device: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """One node. An unknown value is None or empty, and `unknown` has the reason, by question."""

    name: str
    hostname: str | None = None
    vendor: str | None = None
    maker: str = ""
    halves: Mapping[Half, HalfFacts] = field(default_factory=dict)
    unexpected_functions: tuple[str, ...] = ()
    """Functions of a ConnectX card that have another name or place than those of a GB10, in words."""
    links: str = ""
    """Output of `ip -d -j address`."""
    neighbours: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The MAC addresses of the neighbours on each interface, in lower case."""
    management: str | None = None
    """The interface of the default route."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The values of options that roles adopt, by `ADOPTED`; unknown and missing ones are left out."""
    time_servers: tuple[str, ...] = ()
    kernel: str | None = None
    driver: str | None = None
    packages: tuple[NodePackage, ...] | None = None
    engine: str | None = None
    """Version line of docker, or "none"."""
    images: LocalImages | None = None
    """None when unknown; empty without an engine."""
    sshd: Mapping[str, str] | None = None
    naming: str = ""
    whole: str = ""
    rendering: str = ""
    owners: str = ""
    """How its netplan files name interfaces of the fabric, and what configures them; see
    `roles.fabric.foreign_netplan` and `roles.fabric.interface_owners`."""
    hotplug: bool | None = None
    engines: Engines = field(default_factory=Engines)
    """Units of another rack.yaml, and engines that were started by hand."""
    unknown: Mapping[str, str] = field(default_factory=dict)


def parse_node_facts(name: str, answers: Mapping[str, Answer]) -> NodeFacts:
    """Parse the answers of a node to the script of `probe_script`. Never raises: a question without a valid answer is
    in `unknown`."""
    parser = _Parser(answers)
    links = parser.value("links", _parse_links) or {}
    halves = parser.value("links", lambda _: _half_facts_of_port(name, links)) if links else {}
    makers = [parser.value(question, _first_line) or "" for question in ("maker", "board")]
    return NodeFacts(
        name=name,
        hostname=parser.value("hostname", _parse_hostname),
        vendor=vendor_of(*makers),
        maker=makers[0],
        halves=halves or {},
        unexpected_functions=parser.value("functions", _unexpected_functions) or (),
        links=answers["links"].text if links and halves is not None else "",
        neighbours=parser.value("neighbours", lambda answer: parse_neighbours(answer.text)) or {},
        management=parser.value("route", _route_device),
        options={
            question: value
            for question, option in ADOPTED.items()
            if (value := parser.value(question, partial(_parse_option, option))) is not None
        },
        time_servers=parser.value(TIME_SERVERS, lambda answer: servers_in_use(answer.text)) or (),
        kernel=parser.value("kernel", _first_line),
        driver=parser.value("driver", _parse_driver),
        packages=parser.value("packages", lambda answer: tuple(parse_packages(answer.text))),
        engine=parser.value("engine", _first_line),
        images=parser.value("images", lambda answer: local_images(answer.text)),
        sshd=parser.value("sshd", lambda answer: dict(line.lower().split(None, 1) for line in answer.lines)),
        naming=parser.value("naming", lambda answer: answer.text) or "",
        whole=parser.value("whole", lambda answer: answer.text) or "",
        rendering=parser.value("rendering", lambda answer: answer.text) or "",
        owners=parser.value("owners", lambda answer: answer.text) or "",
        hotplug=parser.value("hotplug", lambda answer: {"yes": True, "no": False}[_first_line(answer)]),
        engines=parser.value("engines", lambda answer: parse_engines(answer.text)) or Engines(),
        unknown=parser.unknown,
    )


def with_neighbours(facts: NodeFacts, output: str) -> NodeFacts:
    """Return the facts with the neighbours in this output of `ip -j neigh`; unchanged when it is not such output."""
    try:
        return replace(facts, neighbours=parse_neighbours(output))
    except ValueError:
        return facts


def parse_neighbours(text: str) -> dict[str, frozenset[str]]:
    """Parse the MAC addresses on each interface, from `ip -j neigh`. Raises ValueError for any other text."""
    found: dict[str, set[str]] = {}
    for row in parse_ip_rows(text or "[]"):
        if row.get("lladdr") and "FAILED" not in row.get("state", ()):
            found.setdefault(str(row.get("dev")), set()).add(str(row["lladdr"]).lower())
    return {name: frozenset(macs) for name, macs in found.items()}


class _Parser:
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers
        self.unknown: dict[str, str] = {}

    def value(self, question: str, parse: Callable[[Answer], Value]) -> Value | None:
        """Return the parsed answer to a question; None, with the reason recorded, when it is unknown."""
        answer = self.answers.get(question)
        try:
            if answer is None:
                self.unknown[question] = "was not answered"
            elif answer.code:
                self.unknown[question] = f"its tool ended with {answer.code}"
            else:
                return parse(answer)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as fault:
            self.unknown[question] = truncate(fault) if isinstance(fault, ValueError) else "cannot be understood"
        return None


def _first_line(answer: Answer) -> str:
    lines = [line.strip() for line in answer.lines if line.strip() and not line.startswith("#")]
    if not lines:
        raise ValueError("is empty")
    return printable_line(lines[0])


def _parse_hostname(answer: Answer) -> str:
    name = _first_line(answer).partition(".")[0]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", name):
        raise ValueError(f"{truncate(name)} is not a host name")
    return name


def _parse_option(option: AdoptedOption, answer: Answer) -> object:
    return option.parse(answer.text)


def _parse_driver(answer: Answer) -> str:
    text = _first_line(answer)
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+~-]{0,62}", text):
        raise ValueError(f"{truncate(text)} is not a version")
    return text


def _route_device(answer: Answer) -> str | None:
    return next((str(row["dev"]) for row in parse_ip_rows(answer.text or "[]") if "dev" in row), None)


def _unexpected_functions(answer: Answer) -> tuple[str, ...]:
    found = []
    for line in answer.lines:
        name, place = line.split()
        known = gb10.HALVES.get(place)
        if known is None or Half("", *known).interface != name:
            found.append(f"{truncate(name)} at PCIe {truncate(place)}")
    return tuple(found)


def _parse_links(answer: Answer) -> dict[str, IpLink]:
    found = parse_ip_links(answer.text)
    for name, link in found.items():
        if None in (link.flags, link.mtu, link.addresses):
            raise ValueError(f"`ip` reports no flags, MTU or addresses of {truncate(name)}")
    return found


def _half_facts_of_port(name: str, links: Mapping[str, IpLink]) -> dict[Half, HalfFacts]:
    halves = (Half(name, port, index) for port in (0, 1) for index in (0, 1))
    return {half: _half_facts(half, links) for half in halves if half.interface in links}


def _half_facts(half: Half, links: Mapping[str, IpLink]) -> HalfFacts:
    link = links[half.interface]
    flags = link.flags or ()
    facts = HalfFacts(
        mac=link.mac,
        up="UP" in flags and "NO-CARRIER" not in flags,
        mtu=link.mtu or 0,
        addresses=_list_addresses(link),
        device=half.interface,
    )
    tagged = [(name, one) for name, one in links.items() if one.vlan and one.vlan.parent == half.interface]
    if facts.addresses or len(tagged) != 1:
        return facts
    ((name, vlan_link),) = tagged
    number = vlan_link.vlan.number if vlan_link.vlan else None
    return replace(facts, addresses=_list_addresses(vlan_link), vlan=number, device=name)


def _list_addresses(link: IpLink) -> tuple[IPv4Interface, ...]:
    return tuple(one for one in map(IPv4Interface, link.addresses or ()) if not one.ip.is_link_local)
