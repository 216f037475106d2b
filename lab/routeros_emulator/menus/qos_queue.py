"""/interface/ethernet/switch/qos/tx-manager and its queues: eight of each manager, that come and go with it."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Reference, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.qos import LOSSLESS, NAMED, ROWS, TX_MANAGER, defaults, state, stays, switched_on
from lab.routeros_emulator.numbers import Amount

QUEUE = f"{TX_MANAGER}/queue"
_BUILTIN = 2
#: Schedule and weight of the queues of a manager (MikroTik manual, 'Traffic prioritization').
_SCHEDULES = (
    *(("low-priority-group", "1"), ("low-priority-group", "2"), ("low-priority-group", "3")),
    *(("high-priority-group", "3"), ("high-priority-group", "4"), ("high-priority-group", "5")),
    *(("strict-priority", None), ("strict-priority", None)),
)

MANAGER_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("queue-buffers", Amount(), "auto"),
)
QUEUE_FIELDS = (
    EmulatedField("tx-manager", Reference((TX_MANAGER,)), fixed=True),
    EmulatedField("traffic-class", Integer(0, 7), fixed=True),
    EmulatedField("schedule", Enum(("strict-priority", "low-priority-group", "high-priority-group"))),
    EmulatedField("weight", Integer(0, 255)),
    EmulatedField("wred", Bool(), "false"),
    EmulatedField("ecn", Bool(), "false", since=LOSSLESS),
)


def _factory_managers(_device: EmulatedDevice) -> Iterator[Values]:
    yield defaults(MANAGER_FIELDS) | {"name": "default"}
    yield defaults(MANAGER_FIELDS) | {"name": "offline", "comment": "Use this for permanently disconnected ports"}


def _make_queues(manager: str) -> Iterator[Values]:
    for number, (schedule, weight) in enumerate(_SCHEDULES):
        values = {"tx-manager": manager, "traffic-class": str(number), "schedule": schedule}
        yield values | ({"weight": weight} if weight else {}) | {"wred": "false", "ecn": "false"}


def _list_queues(device: EmulatedDevice, row: EmulatedRow) -> list[tuple[str, EmulatedRow]]:
    """The queues of a manager; those of a new one are made now. Of the builtin ones only ``default`` has any."""
    name = row.values["name"]
    if found := [queue for queue in device.store.rows(QUEUE) if queue.values["tx-manager"] == name]:
        return [(QUEUE, queue) for queue in found]
    return [(QUEUE, EmulatedRow(device.store.new_id(TX_QUEUE), values)) for values in _make_queues(name)]


def _check_queue(_device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    """A queue of strict priority has no weight; one that joins a group begins with 1 (manual)."""
    if row.values["schedule"] == "strict-priority":
        row.values.pop("weight", None)
    else:
        row.values.setdefault("weight", "1")


def _show_queue(device: EmulatedDevice, row: EmulatedRow) -> Values:
    actual = {"wred-actual": row.values["wred"]}
    if device.version >= LOSSLESS:
        actual["ecn-actual"] = row.values["ecn"]
    return state(0, numbered=False)(device, row) | actual


QOS_TX_MANAGER = EmulatedMenu(
    TX_MANAGER,
    MANAGER_FIELDS,
    verbs=ROWS,
    named_by="name",
    unique=NAMED,
    first_id=0,
    factory=_factory_managers,
    show=state(_BUILTIN),
    check=switched_on(_BUILTIN),
    keep=stays(_BUILTIN),
    along=_list_queues,
)
TX_QUEUE = EmulatedMenu(
    QUEUE,
    QUEUE_FIELDS,
    verbs=EDIT,
    first_id=0,
    factory=lambda _device: _make_queues("default"),
    show=_show_queue,
    check=_check_queue,
)
