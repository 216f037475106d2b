"""The gateway of a rack, closed over ssh for one unit while it stops, so that its requests end and none begins."""

from __future__ import annotations

from shlex import join

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.scrub import scrub
from serving.gateway import PROGRAM
from serving.options import ServedUnit, gateway_of

ABSENT = 66
"""Exit code of the script on a node that has no gateway yet."""


class GatewayError(Exception):
    """The gateway gave no usable answer. The text is one printable sentence that names its node."""


class UnitGateway:
    """The gateway for one unit, behind a root shell on its node."""

    def __init__(self, unit: ServedUnit, node: str, shell: RootShell) -> None:
        self.unit, self.node = unit, node
        self._shell = shell

    def close(self) -> None:
        """Have new requests of the unit refused; nothing is done on a node without a gateway. Raises GatewayError."""
        self._run_program("close")

    def open(self) -> None:
        """Have requests of the unit accepted again. Raises GatewayError."""
        self._run_program("open")

    def _run_program(self, verb: str) -> None:
        try:
            done = self._shell.run(f"[ -e {PROGRAM} ] || exit {ABSENT}; {join([PROGRAM, verb, self.unit.name])}")
        except (OSError, UnreachableError) as error:
            why = getattr(error, "why", None) or getattr(error, "strerror", None) or str(error)
            raise GatewayError(printable_line(scrub(f"{self.node}: the gateway cannot be asked: {why}"))) from None
        if done.rc not in (0, ABSENT):
            lines = str(done.stderr).strip().splitlines() or [f"the program ended with exit {done.rc}"]
            raise GatewayError(printable_line(scrub(f"{self.node}: {lines[-1]}")))


def gateway_node(rack: Rack) -> str | None:
    """Return the node of the gateway; None for a rack without one."""
    gateway = gateway_of(rack)
    return gateway.node if gateway else None
