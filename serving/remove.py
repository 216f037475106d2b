"""Take the served units and the gateway off a node; refused while a unit runs there."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from serving import ROLE, gateway, gateway_router, running_engines
from serving.launch import CACHES, UNIT_FILES, UNIT_PROGRAMS
from serving.services import STATE_FOLDER

_UNITS = ("sparkrack-serve-*.service", gateway.SERVICE, gateway_router.SERVICE)

TRACES = Traces(
    ROLE.key,
    own=(
        *(f"/etc/systemd/system/{unit}" for unit in _UNITS),
        *(f"/etc/systemd/system/*.wants/{unit}" for unit in _UNITS),
        "/etc/systemd/system/sparkrack-*.slice",
        gateway.PROGRAM,
        *gateway_router.PATHS,
    ),
    units=_UNITS,
    folders=(
        str(UNIT_FILES),
        str(UNIT_PROGRAMS),
        str(CACHES),
        STATE_FOLDER,
        gateway.FOLDER,
        gateway.OLD_CACHE,
    ),
    packages=(gateway.PACKAGE,),
    refuse=(
        # Agent and coordinator of a unit that is stopped run, too; a unit has no hyphen in its name.
        f"running=$({running_engines.PROBE}) || exit 9; for unit in $running; do "
        "case $unit in *-agent.service|*-coordinator.service) continue;; esac; "
        f'echo "block a served unit runs here ($unit); sparkrack serve stop ends it on all its nodes"; done'
    ),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove units, their programs, keys and records, and the gateway."""
    take_off(name="Take the served units off", traces=TRACES, _serial=True)
