"""/interface/ethernet/switch/qos/port: how each port classifies, paces and pauses.

Fields: MikroTik manual, command reference of the menu. Before 7.23 a queue's rate may not be above 100G: two
owners quote the trap.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..call import Call, Reply
from ..counters import QOS_COUNTERS
from ..device import ETHERNET, Device
from ..errors import failure
from ..kinds import Enum, Reference
from ..menu import EDIT, Field, Menu, Row, Values
from ..monitor import default_name, named_ports
from ..numbers import Rate
from ..ports import PORTS
from .qos import LOSSLESS, MAP, PFC, PROFILE, QOS, TX_MANAGER, defaults

_TRUST = Enum(("ignore", "trust", "keep"))
_RATES = tuple(f"egress-rate-queue{number}" for number in range(8))
_OLD_LIMIT = 100 * 10**9
#: The way to the CPU: it has a row, but nothing of it is shown (manual, example of the menu).
_CPU = "switch1-cpu"

FIELDS = (
    Field("name", Reference((ETHERNET,)), fixed=True),
    Field("profile", Reference((PROFILE,)), "default"),
    Field("map", Reference((MAP,)), "default"),
    Field("trust-l2", _TRUST, "ignore"),
    Field("trust-l3", _TRUST, "ignore"),
    Field("tx-manager", Reference((TX_MANAGER,)), "default"),
    Field("pfc", Reference((PFC,)), "disabled", since=LOSSLESS),
    *(Field(name, Rate(), clears=True) for name in _RATES),
)


def _factory(_device: Device) -> Iterator[Values]:
    for port in sorted(PORTS, key=lambda port: port.name):
        yield {"name": port.name} | defaults(FIELDS)
    yield {"name": _CPU}


def _show(device: Device, row: Row) -> Values:
    if row.values["name"] == _CPU:
        return {"switch": "switch1", "invalid": "false", "running": "true"}
    name = default_name(device, row.values["name"])
    running = "true" if device.links.status(name).running else "false"
    counters = {counter: str(device.chip.counter(name, counter)) for counter in QOS_COUNTERS}
    return {"switch": "switch1", "invalid": "false", "running": running} | counters


def _check(device: Device, row: Row, _old: Row | None) -> None:
    if row.values["name"] == _CPU:
        raise failure("can not change the port of the CPU")
    if device.version < LOSSLESS and any(int(row.values.get(name, "0")) > _OLD_LIMIT for name in _RATES):
        raise failure("max bit rate is 100G")


def _reset_counters(call: Call) -> Reply:
    for name in named_ports(call):
        if name != _CPU:
            call.device.chip.reset(default_name(call.device, name))
    return Reply()


QOS_PORT = Menu(
    f"{QOS}/port",
    FIELDS,
    verbs=EDIT | {"unset", "listen"},
    named_by="name",
    factory=_factory,
    show=_show,
    check=_check,
    actions={"reset-counters": _reset_counters},
    protected=frozenset({"reset-counters"}),
)
