"""Metrics of a command, put where the exporter of the server of the watch reads them, from any machine."""

from __future__ import annotations

import base64
import gzip
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from posixpath import dirname

from core.model import Node, Rack
from core.ssh.node_shells import open_shells, script_output
from core.util import resources
from roles.watch import desired
from roles.watch.node_metrics import METRICS
from roles.watch.options import WatchOptions

FOLDER = dirname(METRICS)
ANSWER_SECONDS, CONNECT_SECONDS = 30, 10


@dataclass(frozen=True)
class MetricsFile:
    """A file for the textfile collector. `made`: the time of what it says; it never replaces a newer one."""

    name: str
    text: str
    made: datetime


def ran_on() -> str:
    """Return the name of this machine, which labels what it delivers."""
    return socket.gethostname()


def receiver(rack: Rack) -> Node | None:
    """Return the node that takes metrics; None without a watch, and where its server is not a node of the rack."""
    return desired.server(rack) if rack.declared(WatchOptions) is not None and rack.keeps("watch") else None


def deliver(rack: Rack, files: Sequence[MetricsFile]) -> None:
    """Put the files on the server of the watch, each whole or not at all. Raises ScriptError."""
    node = receiver(rack)
    if node is None or not files:
        return
    script = resources.shell_text("sparkrack.watch", "files/put-metrics.sh")
    with open_shells(rack, [node.name], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
        for file in files:
            content = base64.b64encode(gzip.compress(file.text.encode(), mtime=0)).decode()
            words = (FOLDER, file.name, f"{file.made.timestamp():.0f}", content)
            script_output(shells, node.name, "put-metrics", script, words)
