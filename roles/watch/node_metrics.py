"""The program that exports what a node knows of itself, with its units: desired files and live state. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import dirname

from core.model import Rack
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit

PROGRAM = "/usr/local/lib/sparkrack/node_metrics.py"
SERVICE = "sparkrack-node-metrics.service"
TIMER = "sparkrack-node-metrics.timer"
METRICS = "/var/lib/prometheus/node-exporter/sparkrack-node.prom"
"""In the folder of the textfile collector, as the package of the exporter has it."""
SILENT = 300
"""Seconds after which metrics are old: they are made every minute."""
_UNITS = "/etc/systemd/system"
PATHS = (PROGRAM, f"{_UNITS}/{SERVICE}", f"{_UNITS}/{TIMER}")
MARK = "/run/sparkrack/watch-node-metrics.pending"
"""Mark of files that systemd has not read yet; a reboot replaces the reading."""


# claim: watch.node-metrics
def files(rack: Rack) -> list[ManagedFile]:
    """Return the program and its units; the service has no [Install], its timer starts it."""
    program = resources.file_text("roles.watch", "files/node_metrics.py")
    values = {"header": header(rack.rack), "program": PROGRAM, "metrics": METRICS, "folder": dirname(METRICS)}
    service = resources.file_text("roles.watch", f"templates/{SERVICE}", **values)
    timer = resources.file_text("roles.watch", f"templates/{TIMER}", header=header(rack.rack))
    return [
        ManagedFile(PROGRAM, program.encode(), "755"),
        ManagedFile(f"{_UNITS}/{SERVICE}", service.encode(), validate=validate_unit(SERVICE)),
        ManagedFile(f"{_UNITS}/{TIMER}", timer.encode()),
    ]


@dataclass(frozen=True)
class MetricsState:
    """What a node says of its timer: ActiveState and UnitFileState. `reload`: files of the units were changed since
    systemd read them. `pending`: an earlier run wrote files that systemd has not read. `python`: there is a python3.
    """

    active: str
    file: str
    reload: bool
    pending: bool
    python: bool


_STATE = re.compile(
    r"active (?P<active>[a-z]+)\nfile (?P<file>[a-z-]*)\nreload(?P<reload>( yes| no)+)\n"
    r"pending (?P<pending>yes|no)\npython (?P<python>yes|no)\n"
)


def parse_state(answer: str) -> MetricsState:
    """Parse what files/node-metrics-state.sh prints. Raises ValueError for anything else."""
    found = _STATE.fullmatch(answer)
    if not found:
        raise ValueError(f"state of the node's metrics: unexpected probe output {answer[-80:]!r}")
    yes = {key: "yes" in found[key] for key in ("reload", "pending", "python")}
    return MetricsState(found["active"], found["file"], **yes)
