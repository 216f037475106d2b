"""/interface/ethernet/switch: the one switch chip (MikroTik manual, 'Switch chip features' of the Prestera family)."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Integer, Reference, Text
from lab.routeros_emulator.device import ETHERNET, EmulatedDevice
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, EmulatedRow, Values

FIELDS = (
    EmulatedField("name", Text()),
    EmulatedField("mirror-target", Reference((ETHERNET,)), clears=True),
    EmulatedField("rspan", Bool(), "false"),
    EmulatedField("rspan-ingress-vlan-id", Integer(1, 4095), "1"),
    EmulatedField("rspan-egress-vlan-id", Integer(1, 4095), "1"),
    EmulatedField("l3-hw-offloading", Bool(), "false"),
    EmulatedField("qos-hw-offloading", Bool(), "true"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {"name": "switch1"} | {item.name: item.default for item in FIELDS if item.default is not None}


def _force_offload(_device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    """QoS offload is always on: on this chip ``no`` is taken and ignored (manual, 'Quality of Service')."""
    row.values["qos-hw-offloading"] = "true"


SWITCH = EmulatedMenu(
    "/interface/ethernet/switch",
    FIELDS,
    verbs=EDIT | {"unset"},
    named_by="name",
    first_id=0,
    factory=_factory_rows,
    check=_force_offload,
    show=lambda _device, _row: {"type": "Marvell-98DX7335"},
)
