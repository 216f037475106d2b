"""Take limits, guard and reservations off a node, and bring its swap back."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off, without_lines
from roles.memory import ROLE, desired, memory_gate, services

_UNITS = tuple(unit for service in services.SERVICES for unit in service.units)

TRACES = Traces(
    ROLE.key,
    own=(
        desired.DROPIN,
        memory_gate.SCRIPT,
        *(path for service in services.SERVICES for path in service.paths),
        *(f"/etc/systemd/system/*.wants/{unit}" for unit in _UNITS),
    ),
    edited={desired.FSTAB: without_lines(lambda line: line.startswith(desired.OFF))},
    masks=("*.swap", "swap.target", "*zram*"),
    units=_UNITS,
    sysctls=r"vm\.(min_free_kbytes|overcommit_memory)",
    after="systemctl daemon-reload; swapon -a",
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the ceiling of the containers, the guard and the reservations; swap is on as before."""
    take_off(name="Take the limits of memory off", traces=TRACES, _serial=True)
