"""/interface/bridge with its ports.

Arguments: schema of RouterOS 7.23; defaults: the table that community.routeros keeps of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Duration, Enum, Integer, Mac, Reference, Text
from lab.routeros_emulator.device import BONDING, ETHERNET, EmulatedDevice
from lab.routeros_emulator.device import BRIDGE as BRIDGE_PATH
from lab.routeros_emulator.device import BRIDGE_PORT as PORT_PATH
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values

_FRAMES = Enum(("admit-all", "admit-only-untagged-and-priority-tagged", "admit-only-vlan-tagged"))
_ROUTER = Enum(("disabled", "permanent", "temporary-query"))
_VLAN = Integer(1, 4094)
_PRIORITY = Integer(0, 0xFFFF, hexadecimal=True)

BRIDGE_FIELDS = (
    EmulatedField("name", Text()),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("mtu", Integer(68, 65535, words=("auto",)), "auto"),
    EmulatedField("arp", Enum(("disabled", "enabled", "local-proxy-arp", "proxy-arp", "reply-only")), "enabled"),
    EmulatedField("arp-timeout", Duration(words=("auto",)), "auto"),
    EmulatedField("protocol-mode", Enum(("mstp", "none", "rstp", "stp")), "rstp"),
    EmulatedField("fast-forward", Bool(), "true"),
    EmulatedField("igmp-snooping", Bool(), "false"),
    EmulatedField("multicast-router", _ROUTER),
    EmulatedField("auto-mac", Bool(), "true"),
    EmulatedField("admin-mac", Mac(), clears=True),
    EmulatedField("ageing-time", Duration(10, 1000000), "5m"),
    EmulatedField("priority", _PRIORITY, "0x8000"),
    EmulatedField("max-message-age", Duration(6, 40), "20s"),
    EmulatedField("forward-delay", Duration(4, 30), "15s"),
    EmulatedField("transmit-hold-count", Integer(1, 10), "6"),
    EmulatedField("max-hops", Integer(6, 40), "20"),
    EmulatedField("max-learned-entries", Integer(words=("auto", "unlimited")), "auto"),
    EmulatedField("port-cost-mode", Enum(("short", "long")), "long"),
    EmulatedField("vlan-filtering", Bool(), "false"),
    EmulatedField("pvid", _VLAN, "1"),
    EmulatedField("frame-types", _FRAMES, "admit-all"),
    EmulatedField("ingress-filtering", Bool(), "true"),
    EmulatedField("ether-type", Enum(("0x8100", "0x88a8", "0x9100")), "0x8100"),
    EmulatedField("dhcp-snooping", Bool(), "false"),
    EmulatedField("forward-reserved-addresses", Bool(), "false"),
    EmulatedField("mvrp", Bool(), "false"),
    EmulatedField("mlag-peer-port", Text(), "none"),
    EmulatedField("mlag-priority", Integer(0, 255), "128"),
    EmulatedField("mlag-heartbeat", Duration(1, 10, words=("none",)), "5s"),
)

PORT_FIELDS = (
    EmulatedField("interface", Reference((ETHERNET, BONDING)), required=True),
    EmulatedField("bridge", Reference((BRIDGE_PATH,)), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("hw", Bool(), "true"),
    EmulatedField("pvid", _VLAN, "1"),
    EmulatedField("priority", _PRIORITY, "0x80"),
    EmulatedField("path-cost", Integer(1, 200000000), clears=True),
    EmulatedField("internal-path-cost", Integer(1, 200000000), clears=True),
    EmulatedField("edge", Enum(("auto", "no", "no-discover", "yes", "yes-discover")), "auto"),
    EmulatedField("point-to-point", Enum(("auto", "no", "yes")), "auto"),
    EmulatedField("learn", Enum(("auto", "no", "yes")), "auto"),
    EmulatedField("horizon", Integer(words=("none",)), "none"),
    EmulatedField("frame-types", _FRAMES, "admit-all"),
    EmulatedField("ingress-filtering", Bool(), "true"),
    EmulatedField("multicast-router", _ROUTER, "temporary-query"),
    EmulatedField("auto-isolate", Bool(), "false"),
    EmulatedField("bpdu-guard", Bool(), "false"),
    EmulatedField("broadcast-flood", Bool(), "true"),
    EmulatedField("unknown-multicast-flood", Bool(), "true"),
    EmulatedField("unknown-unicast-flood", Bool(), "true"),
    EmulatedField("fast-leave", Bool(), "false"),
    EmulatedField("restricted-role", Bool(), "false"),
    EmulatedField("restricted-tcn", Bool(), "false"),
    EmulatedField("tag-stacking", Bool(), "false"),
    EmulatedField("trusted", Bool(), "false"),
    EmulatedField("mvrp-applicant-state", Enum(("non-participant", "normal-participant")), "normal-participant"),
    EmulatedField("mvrp-registrar-state", Enum(("fixed", "normal")), "normal"),
)


def _bridge_factory(_device: EmulatedDevice) -> Iterator[Values]:
    yield {f.name: f.default for f in BRIDGE_FIELDS if f.default is not None} | {"name": "bridge"}


def _port_factory(device: EmulatedDevice) -> Iterator[Values]:
    for port in sorted(device.hardware.ports, key=lambda port: port.name):
        defaults = {f.name: f.default for f in PORT_FIELDS if f.default is not None}
        yield {"interface": port.name, "bridge": "bridge"} | defaults


def _show_bridge(device: EmulatedDevice, row: EmulatedRow) -> Values:
    """A bridge follows its ports: l2mtu and, with mtu=auto, the MTU are the smallest of theirs; inferred."""
    ports = [r.values["interface"] for r in device.store.rows(PORT_PATH) if r.values["bridge"] == row.values["name"]]
    members = [member.values for name in ports if (member := device.store.find(ETHERNET, name))]
    auto = min((int(member["mtu"]) for member in members), default=1500)
    shown = {
        "actual-mtu": str(auto) if row.values["mtu"] == "auto" else row.values["mtu"],
        "l2mtu": str(_smallest_l2mtu(device, row.values["name"])),
        "running": "true" if row.values["disabled"] == "false" else "false",
        "dynamic": "false",
    }
    address = row.values.get("admin-mac") or (members[0]["mac-address"] if members else None)
    return shown | ({"mac-address": address} if address else {})


def _check_bridge(device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    """Reported from a CRS804 and a CRS812: every change of a bridge is refused while the mtu that it has of its own is
    above the l2mtu of one of its ports."""
    if old is None or row.values["mtu"] == "auto":
        return
    if int(row.values["mtu"]) > _smallest_l2mtu(device, old.values["name"]):
        raise failure("could not set mtu")


def _smallest_l2mtu(device: EmulatedDevice, bridge: str) -> int:
    """The smallest of the ports."""
    ports = [r.values["interface"] for r in device.store.rows(PORT_PATH) if r.values["bridge"] == bridge]
    members = [member.values for name in ports if (member := device.store.find(ETHERNET, name))]
    return min((int(member["l2mtu"]) for member in members), default=65535)


def _show_port(device: EmulatedDevice, row: EmulatedRow) -> Values:
    bridge = device.store.find(BRIDGE_PATH, row.values["bridge"])
    active = device.runs(row.values["interface"]) and row.values["disabled"] == "false" and bridge is not None
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


def _check_port(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    """A slave is a port through its bond only; the wording is inferred."""
    if bond := device.bond_of(row.values["interface"]):
        raise failure(f"{row.values['interface']} is slave of {bond.values['name']} and can not be a bridge port")


BRIDGE = EmulatedMenu(
    BRIDGE_PATH,
    BRIDGE_FIELDS,
    verbs=FULL | {"unset"},
    named_by="name",
    unique=((("name",), "already have interface with such name"),),
    pool="interface",
    factory=_bridge_factory,
    show=_show_bridge,
    check=_check_bridge,
    unsets=frozenset(),
)

BRIDGE_PORT = EmulatedMenu(
    PORT_PATH,
    PORT_FIELDS,
    verbs=FULL | {"unset"},
    named_by="interface",
    unique=((("interface",), "device already added as bridge port"),),
    first_id=0,
    factory=_port_factory,
    show=_show_port,
    check=_check_port,
    unsets=frozenset({"path-cost", "internal-path-cost"}),
)
