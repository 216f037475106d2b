"""/ip/neighbor and the unit's announcements to its neighbours. Arguments: schema of RouterOS 7.23, and for
``lldp-dcbx`` MikroTik's manual, 'Neighbor discovery': units with a switch chip have it, virtual ones do not.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Duration, Enum, Integer, Text, Words
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import no_match
from lab.routeros_emulator.menu import EDIT, READ, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.lists import LIST

FIELDS = (
    EmulatedField("discover-interface-list", Text(), "static"),
    EmulatedField("discover-interval", Duration(5, 32888), "30s"),
    EmulatedField("lldp-dcbx", Bool(), "false"),
    EmulatedField("lldp-mac-phy-config", Bool(), "false"),
    EmulatedField("lldp-max-frame-size", Bool(), "false"),
    EmulatedField("lldp-med-net-policy-vlan", Integer(0, 4094, ("disabled",)), "disabled"),
    EmulatedField("lldp-vlan-info", Bool(), "false"),
    EmulatedField("dying-gasp", Bool(), "false", since=(7, 24)),
    EmulatedField("mode", Enum(("rx-only", "tx-and-rx", "tx-only")), "tx-and-rx"),
    EmulatedField("protocol", Words(("cdp", "lldp", "mndp")), "cdp,lldp,mndp"),
    EmulatedField("add-dns-entries", Bool(), "false"),
    EmulatedField("add-dns-entries-suffix", Text(), clears=True),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {item.name: item.default for item in FIELDS if item.default is not None}


def _check_list(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    """The list must exist; ``!`` before it means all interfaces but those."""
    if device.store.find(LIST, row.values["discover-interface-list"].removeprefix("!")) is None:
        raise no_match("discover-interface-list")


SETTINGS = EmulatedMenu(
    "/ip/neighbor/discovery-settings",
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory_rows,
    check=_check_list,
)
# The nodes of a laboratory speak no discovery protocol, so there are never neighbours.
NEIGHBOR = EmulatedMenu("/ip/neighbor", verbs=READ, rows=lambda _device: ())
