"""The program that exports what a node knows of itself, with its units: desired files. Pure."""

from __future__ import annotations

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
