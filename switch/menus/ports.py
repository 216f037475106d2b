"""Interfaces, the bridge and its VLANs.

Paths, arguments and words: RouterOS 7.23 command tree (`/console/inspect`); read-only fields and defaults:
MikroTik manual, 'Ethernet' and 'Bridging and switching'.
"""

from __future__ import annotations

from switch.values import Kind

from .menu import COUNT, FACT, FLAG, NOTE, STATE, Field, Menu

ETHERNET = Menu(
    "/interface/ethernet",
    key=("default-name",),  # `name` belongs to the user and may be changed
    fixed=True,
    fields={
        "default-name": FACT,
        "name": Field(),
        "disabled": FLAG,
        "auto-negotiation": Field(Kind.FLAG, default="yes"),
        # A lane that negotiates ignores it (MikroTik manual, 'Ethernet') and prints none from the factory, and no
        # command takes it off a lane again: `unset` has the one word sfp-shutdown-temperature (command trees of
        # 7.21.5 to 7.22.3).
        "speed": Field(only_if=("auto-negotiation", "no")),
        "fec-mode": Field(default="auto"),
        "l2mtu": COUNT,
        "mtu": Field(Kind.COUNT, default="1500"),
        "rx-flow-control": Field(default="off"),
        "tx-flow-control": Field(default="off"),
    },
)
BRIDGE = Menu(
    "/interface/bridge",
    key=("name",),
    # `mtu` is never written; by one of its own RouterOS refuses every change of the bridge, see gate.py.
    fields={"name": Field(), "disabled": FLAG, "vlan-filtering": FLAG, "mtu": STATE},
)
BRIDGE_PORT = Menu(
    "/interface/bridge/port",
    key=("interface",),
    # A dynamic port belongs to whatever made it (a bonding, a VPN) and cannot be set.
    hidden=("dynamic", "yes"),
    fields={
        "interface": Field(),
        "bridge": Field(),
        "disabled": FLAG,
        "hw": Field(Kind.FLAG, default="yes"),
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
        "hw-offload": Field(Kind.FLAG, default="no", read_only=True, volatile=True),
    },
)
BRIDGE_VLAN = Menu(
    "/interface/bridge/vlan",
    key=("bridge", "vlan-ids"),
    hidden=("dynamic", "yes"),  # made by the bridge itself for the pvid of its ports
    fields={
        "bridge": Field(),
        "vlan-ids": Field(Kind.LIST),
        "tagged": Field(Kind.LIST, default=""),
        "untagged": Field(Kind.LIST, default=""),
        "comment": NOTE,
        "disabled": FLAG,
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
    },
)
BRIDGE_HOST = Menu(
    "/interface/bridge/host",
    key=("mac-address", "on-interface"),
    fixed=True,
    fields={"mac-address": STATE, "on-interface": STATE, "local": Field(Kind.FLAG, read_only=True, volatile=True)},
)
"""Which address was learned on which port: the only word of the switch on what hangs on a leg."""
