"""Take the served units and the gateway off a node; refused while a unit runs there."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from serving import ROLE, all_reduce, gateway, gateway_router, running_engines
from serving.launch import CACHES, UNIT_FILES, UNIT_PROGRAMS
from serving.services import STATE_FOLDER

# docker removes a container of an all-reduce when it ends; one that a docker of ill health has kept goes here.
_LIST_CONTAINERS = f"timeout --kill-after=5 20 docker ps --all --filter 'name={all_reduce.CONTAINERS}'"

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
    ),
    packages=(gateway.PACKAGE,),
    refuse=(
        # Agent and coordinator of a unit that is stopped run, too; a unit has no hyphen in its name.
        f"running=$({running_engines.PROBE}) || exit 9; for unit in $running; do "
        "case $unit in *-agent.service|*-coordinator.service) continue;; esac; "
        f'echo "block a served unit runs here ($unit); sparkrack serve stop ends it on all its nodes"; done; '
        f"[ -d {UNIT_PROGRAMS} ] && command -v docker > /dev/null && "
        f"{_LIST_CONTAINERS} --format 'note container {{{{.Names}}}} of a measurement goes, too' || true"
    ),
    before=f"{_LIST_CONTAINERS} --quiet | xargs -r timeout --kill-after=5 30 docker rm --force > /dev/null || true",
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove units, their programs, keys and records, and the gateway."""
    take_off(name="Take the served units off", traces=TRACES, _serial=True)
