"""/interface/bridge with its ports.

Arguments: schema of RouterOS 7.23; defaults: the table that community.routeros keeps of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..device import BRIDGE as BRIDGE_PATH
from ..device import BRIDGE_PORT as PORT_PATH
from ..device import ETHERNET, Device
from ..errors import failure
from ..kinds import Bool, Duration, Enum, Integer, Mac, Reference, Text
from ..menu import FULL, Field, Menu, Row, Values
from ..ports import PORTS

_FRAMES = Enum(("admit-all", "admit-only-untagged-and-priority-tagged", "admit-only-vlan-tagged"))
_ROUTER = Enum(("disabled", "permanent", "temporary-query"))
_VLAN = Integer(1, 4094)
_PRIORITY = Integer(0, 0xFFFF, hexadecimal=True)

BRIDGE_FIELDS = (
    Field("name", Text()),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("mtu", Integer(68, 65535, words=("auto",)), "auto"),
    Field("arp", Enum(("disabled", "enabled", "local-proxy-arp", "proxy-arp", "reply-only")), "enabled"),
    Field("arp-timeout", Duration(words=("auto",)), "auto"),
    Field("protocol-mode", Enum(("mstp", "none", "rstp", "stp")), "rstp"),
    Field("fast-forward", Bool(), "true"),
    Field("igmp-snooping", Bool(), "false"),
    Field("multicast-router", _ROUTER),
    Field("auto-mac", Bool(), "true"),
    Field("admin-mac", Mac(), clears=True),
    Field("ageing-time", Duration(10, 1000000), "5m"),
    Field("priority", _PRIORITY, "0x8000"),
    Field("max-message-age", Duration(6, 40), "20s"),
    Field("forward-delay", Duration(4, 30), "15s"),
    Field("transmit-hold-count", Integer(1, 10), "6"),
    Field("max-hops", Integer(6, 40), "20"),
    Field("max-learned-entries", Integer(words=("auto", "unlimited")), "auto"),
    Field("port-cost-mode", Enum(("short", "long")), "long"),
    Field("vlan-filtering", Bool(), "false"),
    Field("pvid", _VLAN, "1"),
    Field("frame-types", _FRAMES, "admit-all"),
    Field("ingress-filtering", Bool(), "true"),
    Field("ether-type", Enum(("0x8100", "0x88a8", "0x9100")), "0x8100"),
    Field("dhcp-snooping", Bool(), "false"),
    Field("forward-reserved-addresses", Bool(), "false"),
    Field("mvrp", Bool(), "false"),
)

PORT_FIELDS = (
    Field("interface", Reference((ETHERNET,)), required=True),
    Field("bridge", Reference((BRIDGE_PATH,)), required=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("hw", Bool(), "true"),
    Field("pvid", _VLAN, "1"),
    Field("priority", _PRIORITY, "0x80"),
    Field("path-cost", Integer(1, 200000000), clears=True),
    Field("internal-path-cost", Integer(1, 200000000), clears=True),
    Field("edge", Enum(("auto", "no", "no-discover", "yes", "yes-discover")), "auto"),
    Field("point-to-point", Enum(("auto", "no", "yes")), "auto"),
    Field("learn", Enum(("auto", "no", "yes")), "auto"),
    Field("horizon", Integer(words=("none",)), "none"),
    Field("frame-types", _FRAMES, "admit-all"),
    Field("ingress-filtering", Bool(), "true"),
    Field("multicast-router", _ROUTER, "temporary-query"),
    Field("auto-isolate", Bool(), "false"),
    Field("bpdu-guard", Bool(), "false"),
    Field("broadcast-flood", Bool(), "true"),
    Field("unknown-multicast-flood", Bool(), "true"),
    Field("unknown-unicast-flood", Bool(), "true"),
    Field("fast-leave", Bool(), "false"),
    Field("restricted-role", Bool(), "false"),
    Field("restricted-tcn", Bool(), "false"),
    Field("tag-stacking", Bool(), "false"),
    Field("trusted", Bool(), "false"),
    Field("mvrp-applicant-state", Enum(("non-participant", "normal-participant")), "normal-participant"),
    Field("mvrp-registrar-state", Enum(("fixed", "normal")), "normal"),
)


def _bridge_factory(_device: Device) -> Iterator[Values]:
    yield {f.name: f.default for f in BRIDGE_FIELDS if f.default is not None} | {"name": "bridge"}


def _port_factory(_device: Device) -> Iterator[Values]:
    for port in sorted(PORTS, key=lambda port: port.name):
        defaults = {f.name: f.default for f in PORT_FIELDS if f.default is not None}
        yield {"interface": port.name, "bridge": "bridge"} | defaults


def _show_bridge(device: Device, row: Row) -> Values:
    """A bridge follows its ports: l2mtu and, with mtu=auto, the MTU are the smallest of theirs; inferred."""
    ports = [r.values["interface"] for r in device.store.rows(PORT_PATH) if r.values["bridge"] == row.values["name"]]
    members = [member.values for name in ports if (member := device.store.find(ETHERNET, name))]
    auto = min((int(member["mtu"]) for member in members), default=1500)
    shown = {
        "actual-mtu": str(auto) if row.values["mtu"] == "auto" else row.values["mtu"],
        "l2mtu": str(_l2mtu(device, row.values["name"])),
        "running": "true" if row.values["disabled"] == "false" else "false",
        "dynamic": "false",
    }
    address = row.values.get("admin-mac") or (members[0]["mac-address"] if members else None)
    return shown | ({"mac-address": address} if address else {})


def _check_bridge(device: Device, row: Row, old: Row | None) -> None:
    """Reported from a CRS804 and a CRS812: every change of a bridge is refused while the mtu that it has of its own is
    above the l2mtu of one of its ports."""
    if old is None or row.values["mtu"] == "auto":
        return
    if int(row.values["mtu"]) > _l2mtu(device, old.values["name"]):
        raise failure("could not set mtu")


def _l2mtu(device: Device, bridge: str) -> int:
    """The smallest of the ports."""
    ports = [r.values["interface"] for r in device.store.rows(PORT_PATH) if r.values["bridge"] == bridge]
    members = [member.values for name in ports if (member := device.store.find(ETHERNET, name))]
    return min((int(member["l2mtu"]) for member in members), default=65535)


def _show_port(device: Device, row: Row) -> Values:
    bridge = device.store.find(BRIDGE_PATH, row.values["bridge"])
    port = device.store.find(ETHERNET, row.values["interface"])
    running = port is not None and device.links.status(port.values["default-name"]).running
    active = running and row.values["disabled"] == "false" and bridge is not None
    offloaded = row.values["hw"] == "true" and row.values["bridge"] == device.offloaded_bridge()
    shown = {
        "status": "in-bridge" if active else "inactive",
        "inactive": "false" if active else "true",
        "dynamic": "false",
        "hw-offload": "true" if offloaded else "false",
        "role": "designated-port" if active else "disabled-port",
        "forwarding": "true" if active else "false",
        "learning": "true" if active else "false",
    }
    return shown | ({"hw-offload-group": "switch1"} if offloaded else {})


BRIDGE = Menu(
    BRIDGE_PATH,
    BRIDGE_FIELDS,
    verbs=FULL | {"unset", "listen"},
    named_by="name",
    unique=((("name",), "already have interface with such name"),),
    pool="interface",
    factory=_bridge_factory,
    show=_show_bridge,
    check=_check_bridge,
    unsets=frozenset(),
)

BRIDGE_PORT = Menu(
    PORT_PATH,
    PORT_FIELDS,
    verbs=FULL | {"unset", "listen"},
    named_by="interface",
    unique=((("interface",), "device already added as bridge port"),),
    first_id=0,
    factory=_port_factory,
    show=_show_port,
    unsets=frozenset({"path-cost", "internal-path-cost"}),
)
