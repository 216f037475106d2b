"""The systemd units of a served unit and of the gateway, as services, and the fact that has the state of all of them.

The agent of a unit starts and stops its rank, so the service of the rank is a file here and not a unit that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from core.ops.managed_service import ManagedService, Reads
from core.ops.shell import quote
from core.probes.systemd_units import show_units
from serving import desired
from serving import gateway as gateway
from serving import gateway_router as gateway_router
from serving.launch import UNIT_FILES

UNITS = "serving-units"
STATE_FOLDER = "/var/lib/sparkrack/serve"
_WANTS = f"{desired.UNITS}/multi-user.target.wants"
_IN_FOLDER = re.compile(rf"{UNIT_FILES}/[^/]+\.files(?=/)")
"""The folder of the files of a unit that are mounted into its container."""

GATEWAY = ManagedService(
    "gateway",
    (gateway.SERVICE,),
    gateway.PATHS,
    Reads.RELOAD,
    # A configuration that nginx refuses leaves its processes as they are, and is not restarted into.
    reload=f"systemctl reload-or-restart {gateway.SERVICE}",
    leftovers=(gateway.INSTALLING,),
)
"""nginx, which keeps the requests that run over a reload."""
ROUTER = ManagedService("gateway-router", (gateway_router.SERVICE,), gateway_router.PATHS)
"""A restart ends no stream: no answer of an engine passes it."""
SERVICES = (GATEWAY, ROUTER)
"""Those whose units have the same names on each rack."""


def unit_service(unit: str, paths: Iterable[str], *, head: bool, up: bool = False) -> ManagedService:
    """Return the agent of a unit on one of its nodes, and on its head the coordinator, as one service.

    Args:
        unit: the name of the unit.
        paths: of its files on the node.
        head: whether the node has the coordinator.
        up: whether the unit runs, or is about to: then nothing of it is restarted, which would end its rank.
    """
    # The gate of a rank reads it. A reboot between two files must not start the rank.
    mark = f"{UNIT_FILES}/{unit}.pending"
    return ManagedService(
        f"serve-{unit}",
        tuple(desired.unit_service(unit, suffix) for suffix in (("-agent", "-coordinator") if head else ("-agent",))),
        tuple(path for path in paths if path != mark),
        Reads.NOTHING if up else Reads.RESTART,
        # The coordinator reads at its start whether its files are previous ones; now they are those of rack.yaml.
        prepare=f"rm -f {UNIT_FILES}/{unit}.previous",
        leftovers=(f"{STATE_FOLDER}/{unit}.json", f"{STATE_FOLDER}/{unit}.rank.json"),
        lasting_mark=mark,
    )


def show_services() -> str:
    """Return the shell text of the fact: systemd's state of the gateway and of each unit that the node has files of."""
    gateways = (unit for service in SERVICES for unit in service.units)
    return (
        f"set --; for f in {desired.UNITS}/sparkrack-serve-*.service; do "
        'case ${f##*/} in *[!a-z0-9_.-]*) ;; *) set -- "$@" "${f##*/}" ;; esac; done; '
        + show_units((*gateways, '"$@"'))
    )


def remove_files(paths: Iterable[str]) -> str:
    """Return shell text that stops the services among files that a unit no longer has, and removes all of them."""
    paths = list(paths)
    names = [path.rpartition("/")[2] for path in paths if path.startswith(f"{desired.UNITS}/")]
    services = sorted((name for name in names if name.endswith(".service")), key=len, reverse=True)
    stop = f"systemctl stop {quote(*services)}; " if services else ""
    # `systemctl disable` fails when the unit was removed and its link was left.
    links = [f"{_WANTS}/{name}" for name in services]
    folders = sorted({found[0] for path in paths if (found := _IN_FOLDER.match(path))})
    emptied = f"; find {quote(*folders)} -depth -type d -empty -delete" if folders else ""
    return f"{stop}rm -f {quote(*links, *paths)}{emptied}" + ("; systemctl daemon-reload" if names else "")
