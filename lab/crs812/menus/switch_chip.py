"""/interface/ethernet/switch: the one switch chip (MikroTik manual, 'Switch chip features' of the Prestera family)."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import ETHERNET, Device
from ..kinds import Bool, Integer, Reference, Text
from ..menu import EDIT, Field, Menu, Row, Values

FIELDS = (
    Field("name", Text()),
    Field("mirror-target", Reference((ETHERNET,)), clears=True),
    Field("rspan", Bool(), "false"),
    Field("rspan-ingress-vlan-id", Integer(1, 4095), "1"),
    Field("rspan-egress-vlan-id", Integer(1, 4095), "1"),
    Field("l3-hw-offloading", Bool(), "false"),
    Field("qos-hw-offloading", Bool(), "true"),
)


def _factory(_device: Device) -> Iterator[Values]:
    yield {"name": "switch1"} | {item.name: item.default for item in FIELDS if item.default is not None}


def _check(_device: Device, row: Row, _old: Row | None) -> None:
    """QoS offload is always on: on this chip ``no`` is taken and ignored (manual, 'Quality of Service')."""
    row.values["qos-hw-offloading"] = "true"


SWITCH = Menu(
    "/interface/ethernet/switch",
    FIELDS,
    verbs=EDIT | {"unset", "listen"},
    named_by="name",
    first_id=0,
    factory=_factory,
    check=_check,
    show=lambda _device, _row: {"type": "Marvell-98DX7335"},
)
