"""What must hold between the sections of a rack file, each rule on its own, all of them judged at once."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from sparkrack.fleet import addressing, images, switch_rules, wiring
from sparkrack.fleet.cabling import Cabling, Leg
from sparkrack.fleet.draft import NOWHERE, Draft
from sparkrack.fleet.errors import Path, Problem
from sparkrack.fleet.section import MAX_L2MTU
from sparkrack.fleet.settings import Rdma
from sparkrack.fleet.switches import Switch
from sparkrack.fleet.types import Fabric

_TAG = 4
"""The bytes of a VLAN tag; they count for the l2mtu and not for the mtu (MikroTik manual, "MTU in RouterOS")."""


_SSH = 22
_API = (8728, 8729)
"""Where sshd listens, and the API of a switch without and with TLS."""
_BRIDGE = IPv4Network("172.17.0.0/16")
"""The network of docker's own bridge, unless daemon.json says otherwise (docker manual, "Bridge network driver")."""


def check(draft: Draft) -> Iterator[Problem]:
    """Every broken rule of the draft."""
    yield from _names(draft)
    yield from _user(draft)
    yield from _addresses(draft)
    yield from _own(draft)
    yield from _mtus(draft)
    yield from _images(draft)
    cabling, problems = wiring.trace(draft.nodes, draft.switches, draft.unread)
    yield from problems
    for switch in draft.switches.values():
        yield from switch_rules.check(switch)
    if draft.fabric:
        yield from _networks(draft, draft.fabric)
        yield from _hosts(draft, draft.fabric)
        yield from _vlans(draft, draft.fabric)
    if draft.complete and not problems:
        yield from _cabled(draft, cabling)
        if draft.fabric:
            yield from _fabric(draft, draft.fabric, cabling)
        if draft.rdma:
            yield from _sockets(draft, draft.rdma, cabling)


def _names(draft: Draft) -> Iterator[Problem]:
    seen: dict[str, tuple[str, str]] = {}
    if draft.complete and not draft.nodes:
        yield Problem(("nodes",), "holds no node", "write at least one, like spark1: {address: 10.77.0.11, ...}")
    for section, other, names in (("nodes", "node", draft.nodes), ("switches", "switch", draft.switches)):
        for name in names:
            spelled, kind = seen.setdefault(name.lower(), (name, other))
            if spelled == name and kind == other:
                continue
            what = (
                f"is also the name of a {kind}"
                if spelled == name
                else f"is also the name of {spelled}, in other letters"
            )
            yield Problem((section, name), what, "give each machine a name of its own")


def _user(draft: Draft) -> Iterator[Problem]:
    if draft.access and draft.access.user == "root" and draft.access.hardening and "access" not in draft.leave:
        yield Problem(
            ("access", "user"),
            "root is kept out by access.hardening, which is on unless it is written as false",
            "write a user that may use sudo, like ops, or hardening: false",
        )


def _managed(draft: Draft) -> Iterator[tuple[Path, str, IPv4Address]]:
    """Where each management address is written, whose it is, and what it is."""
    for name, node in draft.nodes.items():
        if node.address != NOWHERE:
            yield ("nodes", name, "address"), name, node.address
    for name, switch in draft.switches.items():
        if switch.address != NOWHERE:
            yield ("switches", name, "address"), name, switch.address


def _addresses(draft: Draft) -> Iterator[Problem]:
    seen: dict[IPv4Address, str] = {}
    for path, name, address in _managed(draft):
        if address in seen:
            yield Problem(
                path,
                f"{address} is already the address of {seen[address]}",
                "give each machine an address of its own",
            )
        seen.setdefault(address, name)


def _own(draft: Draft) -> Iterator[Problem]:
    """A loopback address reaches a machine through a tunnel, at a port that is not its own."""
    doors = [(("nodes", name, "address"), node.address) for name, node in draft.nodes.items()] if draft.access else []
    for path, address in doors:
        if address.is_loopback and draft.access and draft.access.port == _SSH:
            what = f"{address} with port {_SSH} is this machine itself"
            yield Problem(path, what, "write the node's address, or the port of a tunnel to it at access.port")
    for name, switch in draft.switches.items():
        if switch.address.is_loopback and switch.port in _API:
            what = f"{switch.address} with port {switch.port} is this machine itself"
            right = f"write the switch's address, or the port of a tunnel to it at switches.{name}.port"
            yield Problem(("switches", name, "address"), what, right)


def _mtus(draft: Draft) -> Iterator[Problem]:
    lowest = min(draft.switches.values(), key=lambda switch: switch.mtu, default=None)
    if draft.fabric and lowest and draft.fabric.mtu > lowest.mtu:
        yield Problem(
            ("fabric", "mtu"),
            f"{draft.fabric.mtu} is larger than the mtu {lowest.mtu} of {lowest.name}",
            f"write at most {lowest.mtu}, or raise switches.{lowest.name}.mtu",
        )


def _vlans(draft: Draft, fabric: Fabric) -> Iterator[Problem]:
    vlans = fabric.vlans
    if vlans is None:
        return
    if len(vlans) != 2:
        yield Problem(
            ("fabric", "vlans"),
            f"holds {len(vlans)} VLAN{'s' if len(vlans) != 1 else ''}",
            "write two, one for each half of a port",
        )
    elif vlans[0] == vlans[1]:
        yield Problem(
            ("fabric", "vlans", 1),
            f"{vlans[1]} is already the VLAN of the first half",
            "the halves of a port need separate VLANs",
        )
    for name, switch in draft.switches.items():
        if fabric.mtu <= switch.mtu and fabric.mtu + _TAG > switch.l2mtu >= switch.mtu:
            yield Problem(
                ("switches", name, "l2mtu"),
                f"{switch.l2mtu} has no room for a tagged packet of {fabric.mtu} bytes",
                f"write at least {fabric.mtu + _TAG}, or remove fabric.vlans"
                if fabric.mtu + _TAG <= MAX_L2MTU
                else f"write at most {MAX_L2MTU - _TAG} at fabric.mtu, or remove fabric.vlans",
            )


def _images(draft: Draft) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for place, name in enumerate(draft.images):
        local = images.image(name).local
        first = seen.setdefault(local, name)
        if place and first == name and name in draft.images[:place]:
            yield Problem(("images", place), f"{name} is listed twice", "list every image once")
        elif first != name:
            yield Problem(("images", place), f"{name} and {first} are both {local} on a node", "keep one of them")


def _networks(draft: Draft, fabric: Fabric) -> Iterator[Problem]:
    named: list[tuple[Path, IPv4Network]] = [
        (("fabric", "subnets", place), subnet) for place, subnet in enumerate(fabric.subnets or ())
    ]
    if fabric.subnets is not None and len(fabric.subnets) != 2:
        yield Problem(
            ("fabric", "subnets"),
            f"holds {len(fabric.subnets)} subnet{'s' if len(fabric.subnets) != 1 else ''}",
            "write two, one for each half of a port",
        )
    for place, (path, subnet) in enumerate(named):
        for _, other in named[:place]:
            if subnet.overlaps(other):
                yield Problem(path, f"{subnet} overlaps {other}", "the halves of a port need separate subnets")
    if fabric.pool is not None:
        named.append((("fabric", "pool"), fabric.pool))
    for path, subnet in named:
        for _, name, address in _managed(draft):
            if address in subnet:
                yield Problem(
                    path,
                    f"{subnet} contains {address}, the address of {name}",
                    "keep fabric and management apart",
                )
                break
        if subnet.overlaps(_BRIDGE) and "docker" not in draft.leave:
            what = f"{subnet} overlaps {_BRIDGE}, the network of docker's bridge on every node"
            example = "192.168.100.0/24" if path[1] == "subnets" else "10.100.0.0/20"
            yield Problem(path, what, f"write another private network, like {example}")
        for name, switch in draft.switches.items():
            yield from _in_fabric(("switches", name), switch, subnet)


def _in_fabric(path: Path, switch: Switch, subnet: IPv4Network) -> Iterator[Problem]:
    """Machines that a switch is to reach, or that are to reach it, by a network in which it has no address."""
    single = [
        *((("ntp", place), address) for place, address in enumerate(switch.ntp or ())),
        *((("dns", place), address) for place, address in enumerate(switch.dns or ())),
        *([(("syslog",), switch.syslog)] if isinstance(switch.syslog, IPv4Address) else []),
    ]
    inside: list[tuple[Path, object]] = [(key, address) for key, address in single if address in subnet]
    allowed = enumerate(switch.management or ())
    inside += [(("management", place), network) for place, network in allowed if network.subnet_of(subnet)]
    for key, value in inside:
        what = f"{value} is inside the fabric's {subnet}, where the switch has no address"
        yield Problem((*path, *key), what, "write one of the management network")


def _hosts(draft: Draft, fabric: Fabric) -> Iterator[Problem]:
    """Nodes with a number of their own in the fabric's subnets."""
    taken: dict[int, str] = {}
    for name, number in addressing.hosts(draft.nodes).items() if draft.complete else ():
        path, own = ("nodes", name, "host"), draft.nodes[name].host is not None
        if own and fabric.pool is not None:
            what = "has no meaning with fabric.pool, which gives each end of a cable its address"
            yield Problem(path, what, "remove it")
        elif number in taken and fabric.pool is None:
            other, own_there = taken[number], draft.nodes[taken[number]].host is not None
            whose = f"already the host number of {other}" + ("" if own_there else ", by its rank")
            yield Problem(path, f"{number} is {whose}", "give each node a number of its own")
        elif own:
            for subnet in fabric.subnets or ():
                if number > subnet.num_addresses - 2:
                    most = subnet.num_addresses - 2
                    yield Problem(path, f"{subnet} has no host {number}", f"write 1 to {most}, or a larger subnet")
                    break
        taken.setdefault(number, name)


def _cabled(draft: Draft, cabling: Cabling) -> Iterator[Problem]:
    if len(draft.nodes) < 2:
        return
    for name in draft.nodes:
        if not cabling.ports_of(name):
            yield Problem(
                ("nodes", name, "ports"),
                "no cable ends at this node",
                "write where the cable in port 0 or 1 ends",
            )


def _fabric(draft: Draft, fabric: Fabric, cabling: Cabling) -> Iterator[Problem]:
    if any(isinstance(cable.b, Leg) for cable in cabling.cables):
        yield from _switched(draft, fabric, cabling)
    elif fabric.vlans is not None:
        yield Problem(
            ("fabric", "vlans"),
            "keeps the halves of a port apart inside a switch, and no cable ends at one",
            "remove it",
        )
    elif fabric.pool is None and len(cabling.cables) > 1:
        yield Problem(
            ("fabric", "subnets"),
            f"{len(cabling.cables)} cables between nodes cannot share two subnets",
            "write a pool instead, like pool: 10.100.0.0/20",
        )
        return
    if fabric.pool is not None:
        held, needed = addressing.pool_size(fabric.pool), addressing.pool_need(cabling)
        if held < needed:
            yield Problem(
                ("fabric", "pool"),
                f"{fabric.pool} holds {held} /24, and {len(cabling.cables)} cables need {needed}",
                f"write a /{addressing.CARVED - (needed - 1).bit_length()} or larger",
            )
    for place, subnet in enumerate(fabric.subnets or ()):
        hosts = subnet.num_addresses - 2
        if hosts < len(draft.nodes):
            yield Problem(
                ("fabric", "subnets", place),
                f"{subnet} holds {hosts} hosts for {len(draft.nodes)} nodes",
                f"write a /{32 - (len(draft.nodes) + 1).bit_length()} or larger",
            )


def _switched(draft: Draft, fabric: Fabric, cabling: Cabling) -> Iterator[Problem]:
    """Behind a switch all nodes share the subnets; a second cable of a node would join them again."""
    if fabric.pool is not None:
        yield Problem(
            ("fabric", "pool"),
            "cannot serve nodes behind a switch, which share their subnets",
            "write subnets instead, like subnets: [192.168.100.0/24, 192.168.101.0/24]",
        )
    for cable in cabling.cables:
        if not isinstance(cable.b, Leg):
            yield Problem(
                ("nodes", cable.a.node, "ports"),
                f"a cable between nodes ({cable.a} to {cable.b}) beside cables to a switch is not supported",
                "cable every node to a switch, or none",
            )
    for name in draft.nodes:
        if len(cabling.ports_of(name)) > 1 and all(cabling.leg_of(port) for port in cabling.ports_of(name)):
            yield Problem(
                ("nodes", name, "ports"),
                "both ports are cabled to a switch, and two subnets serve one port",
                "cable one port of each node",
            )


def _sockets(draft: Draft, rdma: Rdma, cabling: Cabling) -> Iterator[Problem]:
    """What is said beside RDMA goes from every node to every other, and to the head by one address."""
    if rdma.sockets == "management" or any(isinstance(cable.b, Leg) for cable in cabling.cables):
        return
    if not cabling.cables:
        yield Problem(("rdma", "sockets"), "no node has a cable, so none has a fabric address", "write management")
    elif len(draft.nodes) > 2:
        yield Problem(
            ("rdma", "sockets"),
            f"cables between {len(draft.nodes)} nodes give each pair addresses of its own, and none that all reach",
            "write management",
        )
