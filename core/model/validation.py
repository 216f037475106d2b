"""Rules between the sections of a rack file; each rule is independent, and all are checked at once."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from core.model import addressing, cable_resolver, image_names, switch_validation
from core.model.cabling import Cabling, Leg
from core.model.errors import Path, RuleViolation, format_path
from core.model.fields import PLAIN_API_PORT, SSH_PORT, TLS_API_PORT
from core.model.partial_rack import NOWHERE, PartialRack
from core.model.role import roles
from core.model.sections import Fabric
from core.model.switch_schema import Switch

_TAG = 4
"""The bytes of a VLAN tag; they count for the l2mtu and not for the mtu (MikroTik manual, "MTU in RouterOS")."""
_BRIDGE = IPv4Network("172.17.0.0/16")
"""The network of docker's own bridge, unless daemon.json sets another (docker manual, "Bridge network driver")."""


def check(partial: PartialRack) -> Iterator[RuleViolation]:
    """Yield every broken rule of the partial."""
    yield from _name_violations(partial)
    yield from _user_violations(partial)
    yield from _check_addresses(partial)
    yield from _loopback_violations(partial)
    yield from _mtu_violations(partial)
    yield from _image_violations(partial)
    cabling, problems = cable_resolver.resolve_cables(partial.nodes, partial.switches, partial.unread)
    yield from problems
    for switch in partial.switches.values():
        yield from switch_validation.check(switch)
    fabric = partial.fabric
    if fabric:
        if partial.complete and not problems:  # else the cables, which decide on the default, are not known
            fabric = addressing.sourced(fabric, cabling)
        yield from _check_networks(partial, fabric, written=fabric is partial.fabric)
        yield from _host_violations(partial, fabric)
        yield from _vlan_violations(partial, fabric)
    if partial.complete and not problems:
        yield from _uncabled_violations(partial, cabling)
        if fabric:
            yield from _fabric_violations(partial, fabric, cabling)
    for role in roles():
        if role.rules and role.key in partial.options:
            if role.rules_need_sound_file and (problems or not partial.complete):
                continue
            yield from role.rules(partial, partial.options[role.key], cabling)


def _name_violations(partial: PartialRack) -> Iterator[RuleViolation]:
    seen: dict[str, tuple[str, str]] = {}
    if partial.complete and not partial.nodes:
        yield RuleViolation(("nodes",), "holds no node", "write at least one, like spark1: {address: 10.77.0.11, ...}")
    for section, other, names in (("nodes", "node", partial.nodes), ("switches", "switch", partial.switches)):
        for name in names:
            spelled, kind = seen.setdefault(name.lower(), (name, other))
            if spelled == name and kind == other:
                continue
            what = (
                f"is also the name of a {kind}"
                if spelled == name
                else f"is also the name of {spelled}, in other letters"
            )
            yield RuleViolation((section, name), what, "give each machine a name of its own")


def _user_violations(partial: PartialRack) -> Iterator[RuleViolation]:
    if partial.access and partial.access.user == "root" and partial.access.hardening and "access" not in partial.leave:
        yield RuleViolation(
            ("access", "user"),
            "root is kept out by access.hardening, which is on unless it is written as false",
            "write a user that may use sudo, like ops, or hardening: false",
        )


def _list_management_addresses(partial: PartialRack) -> Iterator[tuple[Path, str, IPv4Address]]:
    """Yield each management address with its path in the file and its host."""
    for name, node in partial.nodes.items():
        if node.address != NOWHERE:
            yield ("nodes", name, "address"), name, node.address
    for name, switch in partial.switches.items():
        if switch.address != NOWHERE:
            yield ("switches", name, "address"), name, switch.address


def _check_addresses(partial: PartialRack) -> Iterator[RuleViolation]:
    seen: dict[IPv4Address, str] = {}
    for path, name, address in _list_management_addresses(partial):
        if address in seen:
            yield RuleViolation(
                path,
                f"{address} is already the address of {seen[address]}",
                "give each machine an address of its own",
            )
        seen.setdefault(address, name)


def _loopback_violations(partial: PartialRack) -> Iterator[RuleViolation]:
    """A loopback address reaches a machine through a tunnel, at a port that is not its own."""
    addresses = (
        [(("nodes", name, "address"), node.address) for name, node in partial.nodes.items()] if partial.access else []
    )
    for path, address in addresses:
        if address.is_loopback and partial.access and partial.access.port == SSH_PORT:
            what = f"{address} with port {SSH_PORT} is this machine itself"
            yield RuleViolation(path, what, "write the node's address, or the port of a tunnel to it at access.port")
    for name, switch in partial.switches.items():
        if switch.address.is_loopback and switch.port in (PLAIN_API_PORT, TLS_API_PORT):
            what = f"{switch.address} with port {switch.port} is this machine itself"
            right = f"write the switch's address, or the port of a tunnel to it at switches.{name}.port"
            yield RuleViolation(("switches", name, "address"), what, right)


# claim: switch.forwarding.l2mtu
def _mtu_violations(partial: PartialRack) -> Iterator[RuleViolation]:
    """What the switch chip forwards is limited by l2mtu. The mtu is that of packets of the switch itself."""
    valid = [switch for switch in partial.switches.values() if switch.mtu <= switch.l2mtu]
    lowest = min(valid, key=lambda switch: switch.l2mtu, default=None)
    if partial.fabric and lowest and partial.fabric.mtu > lowest.l2mtu:
        yield RuleViolation(
            ("fabric", "mtu"),
            f"{partial.fabric.mtu} is larger than the l2mtu {lowest.l2mtu} of {lowest.name}",
            f"write at most {lowest.l2mtu}, or raise switches.{lowest.name}.l2mtu",
        )


def _vlan_violations(partial: PartialRack, fabric: Fabric) -> Iterator[RuleViolation]:
    vlans = fabric.vlans
    if vlans is None:
        return
    if len(vlans) != 2:
        yield RuleViolation(
            ("fabric", "vlans"),
            f"holds {len(vlans)} VLAN{'s' if len(vlans) != 1 else ''}",
            "write two, one for each half of a port",
        )
    elif vlans[0] == vlans[1]:
        yield RuleViolation(
            ("fabric", "vlans", 1),
            f"{vlans[1]} is already the VLAN of the first half",
            "the halves of a port need separate VLANs",
        )
    for name, switch in partial.switches.items():
        if fabric.mtu <= switch.l2mtu < fabric.mtu + _TAG and switch.mtu <= switch.l2mtu:
            yield RuleViolation(
                ("switches", name, "l2mtu"),
                f"{switch.l2mtu} has no room for a tagged packet of {fabric.mtu} bytes",
                f"write at least {fabric.mtu + _TAG}, or remove fabric.vlans"
                if fabric.mtu + _TAG <= switch.hardware.max_l2mtu
                else f"write at most {switch.hardware.max_l2mtu - _TAG} at fabric.mtu, or remove fabric.vlans",
            )


def _image_violations(partial: PartialRack) -> Iterator[RuleViolation]:
    seen: dict[str, str] = {}
    for place, name in enumerate(partial.images):
        local = image_names.image_name(name).local
        first = seen.setdefault(local, name)
        if place and first == name and name in partial.images[:place]:
            yield RuleViolation(("images", place), f"{name} is listed twice", "list every image once")
        elif first != name:
            yield RuleViolation(("images", place), f"{name} and {first} are both {local} on a node", "keep one of them")


def _check_networks(partial: PartialRack, fabric: Fabric, *, written: bool) -> Iterator[RuleViolation]:
    named: list[tuple[Path, IPv4Network]] = [
        (("fabric", "subnets", place), subnet) for place, subnet in enumerate(fabric.subnets or ())
    ]
    if fabric.subnets is not None and len(fabric.subnets) != 2:
        yield RuleViolation(
            ("fabric", "subnets"),
            f"holds {len(fabric.subnets)} subnet{'s' if len(fabric.subnets) != 1 else ''}",
            "write two, one for each half of a port",
        )
    for place, (path, subnet) in enumerate(named):
        for earlier, other in named[:place]:
            if subnet.overlaps(other):
                what = f"{subnet} overlaps {format_path(earlier)}, which is {other}"
                yield RuleViolation(path, what, "the halves of a port need separate subnets")
    if fabric.pool is not None:
        named.append((("fabric", "pool"), fabric.pool))
    for path, subnet in named:
        for _, name, address in _list_management_addresses(partial):
            if address in subnet:
                what = f"{subnet} contains {address}, the address of {name}"
                if written:
                    yield RuleViolation(path, what, "keep fabric and management apart")
                else:
                    yield RuleViolation(
                        path[:2], f"is not written, and its default {what}", _free_networks(partial, path[1])
                    )
                break
        if subnet.overlaps(_BRIDGE) and "docker" not in partial.leave:
            what = f"{subnet} overlaps {_BRIDGE}, the network of docker's bridge on every node"
            example = "192.168.100.0/24" if path[1] == "subnets" else "10.100.0.0/20"
            yield RuleViolation(path, what, f"write another private network, like {example}")
        for name, switch in partial.switches.items():
            yield from _in_fabric(("switches", name), switch, subnet)


def _free_networks(partial: PartialRack, key: object) -> str:
    """Return what may be written at `fabric.subnets` or `fabric.pool` so that no management address is in it."""
    if key == "pool":
        return "write another private network, like pool: 10.200.0.0/20"
    managed = [address for _, _, address in _list_management_addresses(partial)]
    free = [net for net in addressing.candidates() if not any(address in net for address in managed)]
    return f"write two others, like subnets: [{free[0]}, {free[1]}]"


def _in_fabric(path: Path, switch: Switch, subnet: IPv4Network) -> Iterator[RuleViolation]:
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
        yield RuleViolation((*path, *key), what, "write one of the management network")


def _host_violations(partial: PartialRack, fabric: Fabric) -> Iterator[RuleViolation]:
    """Nodes with a number of their own in the fabric's subnets."""
    taken: dict[int, str] = {}
    for name, number in addressing.hosts(partial.nodes).items() if partial.complete else ():
        path, own = ("nodes", name, "host"), partial.nodes[name].host is not None
        if own and fabric.pool is not None:
            what = "has no meaning with fabric.pool, which gives each end of a cable its address"
            yield RuleViolation(path, what, "remove it")
        elif number in taken and fabric.pool is None:
            other, own_there = taken[number], partial.nodes[taken[number]].host is not None
            whose = f"already the host number of {other}" + ("" if own_there else ", by its rank")
            yield RuleViolation(path, f"{number} is {whose}", "give each node a number of its own")
        elif own:
            for subnet in fabric.subnets or ():
                if number > subnet.num_addresses - 2:
                    most = subnet.num_addresses - 2
                    yield RuleViolation(
                        path, f"{subnet} has no host {number}", f"write 1 to {most}, or a larger subnet"
                    )
                    break
        taken.setdefault(number, name)


def _uncabled_violations(partial: PartialRack, cabling: Cabling) -> Iterator[RuleViolation]:
    if len(partial.nodes) < 2:
        return
    for name in partial.nodes:
        if not cabling.ports_of(name):
            yield RuleViolation(
                ("nodes", name, "ports"),
                "no cable ends at this node",
                "write where the cable in port 0 or 1 ends",
            )


def _fabric_violations(partial: PartialRack, fabric: Fabric, cabling: Cabling) -> Iterator[RuleViolation]:
    if any(isinstance(cable.b, Leg) for cable in cabling.cables):
        yield from _check_switched_fabric(partial, fabric, cabling)
    elif fabric.vlans is not None:
        yield RuleViolation(
            ("fabric", "vlans"),
            "keeps the halves of a port apart inside a switch, and no cable ends at one",
            "remove it",
        )
    elif fabric.pool is None and len(cabling.cables) > 1:
        yield RuleViolation(
            ("fabric", "subnets"),
            f"{len(cabling.cables)} cables between nodes cannot share two subnets",
            "write a pool instead, like pool: 10.100.0.0/20",
        )
        return
    if fabric.pool is not None:
        held, needed = addressing.pool_size(fabric.pool), addressing.pool_need(cabling)
        if held < needed:
            yield RuleViolation(
                ("fabric", "pool"),
                f"{fabric.pool} holds {held} /24, and {len(cabling.cables)} cables need {needed}",
                f"write a /{addressing.CARVED - (needed - 1).bit_length()} or larger",
            )
    for place, subnet in enumerate(fabric.subnets or ()):
        hosts = subnet.num_addresses - 2
        if hosts < len(partial.nodes):
            yield RuleViolation(
                ("fabric", "subnets", place),
                f"{subnet} holds {hosts} hosts for {len(partial.nodes)} nodes",
                f"write a /{32 - (len(partial.nodes) + 1).bit_length()} or larger",
            )


def _check_switched_fabric(partial: PartialRack, fabric: Fabric, cabling: Cabling) -> Iterator[RuleViolation]:
    """Behind a switch all nodes share the subnets; a second cable of a node would join them again."""
    if fabric.pool is not None:
        yield RuleViolation(
            ("fabric", "pool"),
            "cannot serve nodes behind a switch, which share their subnets",
            "write subnets instead, like subnets: [192.168.100.0/24, 192.168.101.0/24]",
        )
    used = dict.fromkeys(cable.b.switch for cable in cabling.cables if isinstance(cable.b, Leg))
    first, *others = used
    if others and fabric.switch_links is None:
        yield RuleViolation(
            ("switches", others[0]),
            f"nodes are cabled to {first} and to {' and '.join(others)}, and all nodes share the subnets of the "
            "fabric: that needs a cable between the switches, which cannot be declared",
            "cable all nodes to one switch, write a rack file of its own for each switch and its nodes, or, if you "
            "configure and watch that cable yourself, switch_links: by-hand at fabric",
        )
    elif others and fabric.vlans is not None:
        yield RuleViolation(
            ("fabric", "vlans"),
            "would be taken off the cable between the switches, which is not a declared leg",
            "remove it, or cable all nodes to one switch",
        )
    for cable in cabling.cables:
        if not isinstance(cable.b, Leg):
            yield RuleViolation(
                ("nodes", cable.a.node, "ports"),
                f"a cable between nodes ({cable.a} to {cable.b}) beside cables to a switch is not supported",
                "cable every node to a switch, or none",
            )
    for name in partial.nodes:
        if len(cabling.ports_of(name)) > 1 and all(cabling.leg_of(port) for port in cabling.ports_of(name)):
            yield RuleViolation(
                ("nodes", name, "ports"),
                "both ports are cabled to a switch, and two subnets serve one port",
                "cable one port of each node",
            )
