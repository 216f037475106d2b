"""/interface/ethernet/switch/qos/port: how each port classifies, paces and pauses.

Fields: MikroTik manual, command reference of the menu. Before 7.23 a queue's rate may not be above 100G: two
owners quote the trap.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Enum, Reference
from lab.routeros_emulator.counters import QOS_COUNTERS
from lab.routeros_emulator.device import ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.qos import LOSSLESS, MAP, PFC, PROFILE, QOS, TX_MANAGER, defaults
from lab.routeros_emulator.monitor import default_name, named_ports
from lab.routeros_emulator.numbers import Rate
from lab.routeros_emulator.request import Call, Reply

_TRUST = Enum(("ignore", "trust", "keep"))
_RATES = tuple(f"egress-rate-queue{number}" for number in range(8))
_OLD_LIMIT = 100 * 10**9
#: The way to the CPU: it has a row, but nothing of it is shown (manual, example of the menu).
_CPU = "switch1-cpu"

FIELDS = (
    EmulatedField("name", Reference((ETHERNET,)), fixed=True),
    EmulatedField("profile", Reference((PROFILE,)), "default"),
    EmulatedField("map", Reference((MAP,)), "default"),
    EmulatedField("trust-l2", _TRUST, "ignore"),
    EmulatedField("trust-l3", _TRUST, "ignore"),
    EmulatedField("tx-manager", Reference((TX_MANAGER,)), "default"),
    EmulatedField("pfc", Reference((PFC,)), "disabled", since=LOSSLESS),
    *(EmulatedField(name, Rate(), clears=True) for name in _RATES),
)


def _factory_rows(device: EmulatedDevice) -> Iterator[Values]:
    for port in sorted(device.hardware.ports, key=lambda port: port.name):
        yield {"name": port.name} | defaults(FIELDS)
    yield {"name": _CPU}


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    if row.values["name"] == _CPU:
        return {"switch": "switch1", "invalid": "false", "running": "true"}
    name = default_name(device, row.values["name"])
    running = "true" if device.links.status(name).running else "false"
    counters = {counter: str(device.chip.counter(name, counter)) for counter in QOS_COUNTERS}
    return {"switch": "switch1", "invalid": "false", "running": running} | counters


def _check_row(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    if row.values["name"] == _CPU:
        raise failure("can not change the port of the CPU")
    if device.version < LOSSLESS and any(int(row.values.get(name, "0")) > _OLD_LIMIT for name in _RATES):
        raise failure("max bit rate is 100G")


def _reset_counters(call: Call) -> Reply:
    for name in named_ports(call):
        if name != _CPU:
            call.device.chip.reset(default_name(call.device, name))
    return Reply()


QOS_PORT = EmulatedMenu(
    f"{QOS}/port",
    FIELDS,
    verbs=EDIT | {"unset"},
    named_by="name",
    factory=_factory_rows,
    show=_show_row,
    check=_check_row,
    actions={"reset-counters": _reset_counters},
    protected=frozenset({"reset-counters"}),
)
