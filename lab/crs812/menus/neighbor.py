"""/ip/neighbor and what the unit tells its neighbours. Arguments: schema of RouterOS 7.23, and for
``lldp-dcbx`` MikroTik's manual, 'Neighbor discovery': units with a switch chip have it, virtual ones do not."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import Device
from ..errors import no_match
from ..kinds import Bool, Duration, Enum, Integer, Text, Words
from ..menu import EDIT, READ, Field, Menu, Row, Values
from .lists import LIST

FIELDS = (
    Field("discover-interface-list", Text(), "static"),
    Field("discover-interval", Duration(5, 32888), "30s"),
    Field("lldp-dcbx", Bool(), "false"),
    Field("lldp-mac-phy-config", Bool(), "false"),
    Field("lldp-max-frame-size", Bool(), "false"),
    Field("lldp-med-net-policy-vlan", Integer(0, 4094, ("disabled",)), "disabled"),
    Field("lldp-vlan-info", Bool(), "false"),
    Field("dying-gasp", Bool(), "false", since=(7, 24)),
    Field("mode", Enum(("rx-only", "tx-and-rx", "tx-only")), "tx-and-rx"),
    Field("protocol", Words(("cdp", "lldp", "mndp")), "cdp,lldp,mndp"),
    Field("add-dns-entries", Bool(), "false"),
    Field("add-dns-entries-suffix", Text(), clears=True),
)


def _factory(_device: Device) -> Iterator[Values]:
    yield {item.name: item.default for item in FIELDS if item.default is not None}


def _check(device: Device, row: Row, _old: Row | None) -> None:
    """The list must exist; ``!`` before it means all interfaces but those."""
    if device.store.find(LIST, row.values["discover-interface-list"].removeprefix("!")) is None:
        raise no_match("discover-interface-list")


SETTINGS = Menu(
    "/ip/neighbor/discovery-settings",
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory,
    check=_check,
)
# The nodes of a laboratory speak no discovery protocol, so nobody is ever heard.
NEIGHBOR = Menu("/ip/neighbor", verbs=READ, rows=lambda _device: ())
