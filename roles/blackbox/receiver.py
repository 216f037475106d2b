"""Files of our programs that receive what other nodes send. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from core.model import Node, Rack
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.blackbox import stream_routes

UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class Receiver:
    """A program that receives. program: its path. unit: the name of its unit. source, template: their files in this
    package. port: at which it listens. folder: where it keeps what it gets, with a file a sender."""

    program: str
    unit: str
    source: str
    template: str
    port: int
    folder: str

    @property
    def paths(self) -> tuple[str, str]:
        """The paths of its files."""
        return self.program, f"{UNITS}/{self.unit}"

    def files(
        self, rack: Rack, node: Node, senders: Iterable[Node], limit: int, *arguments: str, **values: str
    ) -> list[ManagedFile]:
        """Return its files on a node.

        Args:
            rack: the rack.
            node: the node that receives.
            senders: the nodes from which it takes something.
            limit: of what it keeps, in MiB.
            arguments: of the program, besides these.
            values: of other placeholders of the template.
        """
        command = [
            "/usr/bin/python3",
            "-I",
            self.program,
            f"--listen={stream_routes.address(node)}:{self.port}",
            f"--folder={self.folder}",
            f"--limit={limit}",
            *(f"--sender={one.name}={stream_routes.address(one)}" for one in senders),
            *arguments,
        ]
        named = {"header": header(rack.rack), "command": shlex.join(command), **values}
        unit = resources.file_text("roles.blackbox", self.template, **named)
        program = resources.file_text("roles.blackbox", self.source)
        return [
            ManagedFile(self.program, program.encode(), "755"),
            ManagedFile(self.paths[1], unit.encode(), validate=validate_unit(self.unit)),
        ]
