"""The program that exports what a node knows of itself, with its units: desired files and live state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import dirname

from core.model import Rack
from core.probes import systemd_units
from core.probes.systemd_units import SystemdUnit
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
    service = resources.file_text("roles.watch", "templates/sparkrack-node-metrics.service", **values)
    timer = resources.file_text("roles.watch", "templates/sparkrack-node-metrics.timer", header=header(rack.rack))
    return [
        ManagedFile(PROGRAM, program.encode(), "755"),
        ManagedFile(f"{_UNITS}/{SERVICE}", service.encode(), validate=validate_unit(SERVICE)),
        ManagedFile(f"{_UNITS}/{TIMER}", timer.encode()),
    ]


@dataclass(frozen=True)
class MetricsState:
    """What a node says of its timer and its service. `pending`: an earlier run wrote files that systemd has not read.
    `python`: there is a python3.
    """

    units: Mapping[str, SystemdUnit]
    pending: bool
    python: bool


_TAIL = re.compile(r"\npending (?P<pending>yes|no)\npython (?P<python>yes|no)\n\Z")


def parse_state(answer: str) -> MetricsState:
    """Parse what files/node-metrics-state.sh prints. Raises ValueError for anything else."""
    fact, tail = "state of the node's metrics", _TAIL.search(answer)
    if not tail:
        raise ValueError(f"{fact}: unexpected probe output {answer[-80:]!r}")
    units = systemd_units.parse_units(fact, answer[: tail.start()], (TIMER, SERVICE))
    return MetricsState(units, pending=tail["pending"] == "yes", python=tail["python"] == "yes")
