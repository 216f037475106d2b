"""Interfaces, the bridge and its VLANs.

Paths, arguments and words: RouterOS 7.23 command tree (`/console/inspect`); read-only fields and defaults:
MikroTik manual, 'Ethernet' and 'Bridging and switching'.
"""

from __future__ import annotations

from core.routeros.menus.menu import COUNT, FACT, FLAG, NOTE, STATE, Menu, MenuField, Sentence
from core.routeros.values import ValueKind

ETHERNET = Menu(
    "/interface/ethernet",
    key=("default-name",),  # `name` belongs to the user and may be changed
    fixed=True,
    fields={
        "default-name": FACT,
        "name": MenuField(),
        "disabled": FLAG,
        "auto-negotiation": MenuField(ValueKind.FLAG, default="yes"),
        # A lane that negotiates ignores it (MikroTik manual, 'Ethernet') and prints none from the factory, and no
        # command takes it off a lane again: `unset` has the one word sfp-shutdown-temperature (command trees of
        # 7.21.5 to 7.22.3).
        # claim: switch.lanes.negotiated-speed, switch.lanes.unset-speed
        "speed": MenuField(only_if=("auto-negotiation", "no")),
        "fec-mode": MenuField(default="auto"),
        "l2mtu": COUNT,
        "mtu": MenuField(ValueKind.COUNT, default="1500"),
        "rx-flow-control": MenuField(default="off"),
        "tx-flow-control": MenuField(default="off"),
    },
)
BRIDGE = Menu(
    "/interface/bridge",
    key=("name",),
    # `mtu` is never written; by one of its own RouterOS refuses every change of the bridge, see gate.py.
    # A bridge with a peer port shares its links with a second switch (MLAG), which this project does not set up.
    fields={
        "name": MenuField(),
        "disabled": FLAG,
        "vlan-filtering": FLAG,
        "mtu": STATE,
        "mlag-peer-port": MenuField(default="none", read_only=True),
        "mlag-priority": MenuField(default="128", read_only=True),
    },
)
BONDING = Menu(
    "/interface/bonding",
    key=("name",),
    fixed=True,
    fields={
        "name": FACT,
        "slaves": MenuField(ValueKind.LIST, default="", read_only=True),
        "mlag-id": FACT,
        "disabled": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
"""Bonds: several interfaces as one. A slave is a port of a bridge only through its bond. Read, never written."""
BRIDGE_PORT = Menu(
    "/interface/bridge/port",
    key=("interface",),
    # A dynamic port belongs to its creator (a bonding, a VPN) and cannot be set.
    hidden=("dynamic", "yes"),
    fields={
        "interface": MenuField(),
        "bridge": MenuField(),
        "disabled": FLAG,
        "hw": MenuField(ValueKind.FLAG, default="yes"),
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
        "hw-offload": MenuField(ValueKind.FLAG, default="no", read_only=True, volatile=True),
    },
)
# claim: switch.vlan.isolation
BRIDGE_VLAN = Menu(
    "/interface/bridge/vlan",
    key=("bridge", "vlan-ids"),
    hidden=("dynamic", "yes"),  # created by the bridge itself for the pvid of its ports
    fields={
        "bridge": MenuField(),
        "vlan-ids": MenuField(ValueKind.LIST),
        "tagged": MenuField(ValueKind.LIST, default=""),
        "untagged": MenuField(ValueKind.LIST, default=""),
        "comment": NOTE,
        "disabled": FLAG,
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
BRIDGE_HOST = Menu(
    "/interface/bridge/host",
    key=("mac-address", "on-interface"),
    fixed=True,
    fields={
        "mac-address": STATE,
        "on-interface": STATE,
        "local": MenuField(ValueKind.FLAG, read_only=True, volatile=True),
    },
)
"""Learned addresses by port: the switch's only information about the device on a leg. One device that invents addresses
fills the table (131072 rows on a CRS812), so only single addresses are asked for.
"""


# claim: switch.bridge-host.query
def place_of(address: str) -> Sentence:
    """Return the sentence that asks behind which port an Ethernet address is."""
    return (*BRIDGE_HOST.sentence(), f"?mac-address={address.upper()}")
