"""`@routeros/<name>`: a RouterOS switch as a pyinfra host. One command is one API sentence.

    pyinfra inventory.py exec --limit switches -- /interface/bridge/port/print '?bridge=bridge'

Rows of the answer are JSON objects, one a line, on stdout; an error of the switch is one line on stderr. If a sentence
fails while this session holds safe mode, everything since it was taken is rolled back at once. Global arguments for a
shell (_sudo, _env and the like) have no meaning here and are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from io import IOBase
from typing import Any, Literal

from pydantic import SecretStr
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.output import echo
from pyinfra.connectors.base import BaseConnector, ConnectorData, DataMeta
from pyinfra.connectors.util import CommandOutput, OutputLine
from typing_extensions import override

from core.model.fields import TLS_API_PORT
from core.model.secrets import SecretError, SecretRef
from core.routeros.api import ApiSession
from core.routeros.errors import SwitchError
from core.routeros.sentences import parse
from core.routeros.session import SessionConnection


class RouterOSData(ConnectorData):
    """Host data of a switch; the inventory makes it from rack.yaml."""

    routeros_address: str
    routeros_port: int
    routeros_user: str
    routeros_password: SecretRef
    routeros_tls_sha256: str | Literal[False]


class RouterOSConnector(BaseConnector):
    """Keeps one session for the whole run."""

    handles_execution = True
    data_cls = RouterOSData
    data_meta = {  # noqa: RUF012 - the base class declares it so
        "routeros_address": DataMeta("Address of the switch"),
        "routeros_port": DataMeta("TCP port of its API", TLS_API_PORT),
        "routeros_user": DataMeta("User to log in as"),
        "routeros_password": DataMeta("Where the password is kept (a SecretRef)"),
        "routeros_tls_sha256": DataMeta("SHA-256 of its certificate (DER); False for the plain API"),
    }

    line: SessionConnection
    """The connection to the switch, for operations that change it."""

    @override
    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        yield f"@routeros/{name}", {}, ["@routeros"]

    @override
    def connect(self) -> None:
        missing = [key for key in self.data_meta if self.data[key] is None]
        if missing:
            raise ConnectError(f"host data {', '.join(missing)} missing; is the switch in the inventory?")
        try:
            password = self.data["routeros_password"].resolve()
            self.line = SessionConnection(partial(self._open_session, password), self.host.log)
            self.line.connect()
        except (SecretError, SwitchError) as fault:
            raise ConnectError(str(fault)) from None

    @override
    def disconnect(self) -> None:
        self.line.close()

    def _open_session(self, password: SecretStr) -> ApiSession:
        return ApiSession(
            self.data["routeros_address"],
            self.data["routeros_port"],
            tls=self.data["routeros_tls_sha256"] or None,
            user=self.data["routeros_user"],
            password=password,
        )

    @override
    def run_shell_command(
        self, command: StringCommand, print_output: bool, print_input: bool, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        if print_input:
            echo(f"{self.host.print_prefix}>>> {command}", err=True)
        fine, output = self._carry_out(command)
        if print_output:
            for line in output:
                echo(f"{self.host.print_prefix}{line.line}", err=True)
        return fine, output

    def _carry_out(self, command: StringCommand) -> tuple[bool, CommandOutput]:
        try:
            sentence = parse(command.get_raw_value())
        except ValueError as fault:
            return False, _command_output("stderr", f"{command}: {fault}{self.line.back_out()}")
        try:
            rows = self.line.talk(*sentence)
        except SwitchError as fault:
            return False, _command_output("stderr", f"{sentence[0]}: {fault}{self.line.back_out()}")
        return True, _command_output("stdout", *map(_row_as_json, rows))

    @override
    def put_file(self, filename_or_io: str | IOBase, remote_filename: str, *args: object, **kwargs: object) -> bool:
        raise OSError("files cannot be put on a switch through its API; use API sentences")

    @override
    def get_file(self, remote_filename: str, filename_or_io: str | IOBase, *args: object, **kwargs: object) -> bool:
        raise OSError("files cannot be fetched from a switch as from a node; use /file/read")


def _row_as_json(row: Mapping[str, str]) -> str:
    """Return one row as JSON. A byte that is not UTF-8 is a JSON escape, so that it can be printed and read again."""
    text = json.dumps(row, ensure_ascii=False)
    return re.sub("[\udc80-\udcff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _command_output(buffer: Literal["stdout", "stderr"], *lines: str) -> CommandOutput:
    return CommandOutput([OutputLine(buffer, line) for line in lines])
