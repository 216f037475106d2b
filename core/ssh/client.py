"""Connections of verify to the nodes: testinfra over OpenSSH, not the transport that made the changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testinfra.host import Host

from core.model import Access, ConfigError, ConfigProblem, Rack
from core.model.errors import printable_line
from core.model.fields import SSH_WORD, is_ssh_word
from core.ssh.root_shell import RootShell
from core.util import regular_file, resources

Machine = Any
"""testinfra's host: `run`, `check_output`, `file`, `sysctl`. It has no types."""


class NodeConnections:
    """The nodes of a rack, each behind one root shell that is kept for the whole verification."""

    def __init__(self, shells: Mapping[str, RootShell]) -> None:
        self._shells = shells
        self._machines: dict[str, Machine] = {}

    def __getitem__(self, node: str) -> Machine:
        if node not in self._machines:
            shell = self._shells[node]
            self._machines[node] = Host(shell)
            shell.set_host(self._machines[node])
        return self._machines[node]


def ssh_config(rack: Rack) -> str:
    """Return an OpenSSH configuration that has the nodes by name, trusts only the rack's known_hosts and never prompts.

    Raises ConfigError when a file that ssh would read is a FIFO, for which it would wait, or another special file.
    """
    for name, path in (("key", rack.access.key), ("known_hosts", rack.access.known_hosts)):
        if what := regular_file.describe_file_type(path):
            what = f"{printable_line(str(path))}: {what}"
            raise ConfigError([ConfigProblem(str(rack.source), None, f"access.{name}", what, "name a regular file")])
    return ssh_config_for(rack.access, {name: node.address for name, node in rack.nodes.items()})


def ssh_config_for(access: Access, addresses: Mapping[str, object]) -> str:
    """The same for machines by name and address, whether or not a rack file has them."""
    common = resources.file_text(
        "core.ssh",
        "templates/ssh_config",
        user=access.user,
        port=access.port,
        key=_quoted_path(access.key),
        known_hosts=_quoted_path(access.known_hosts),
    )
    return "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items()) + common


def _quoted_path(path: Path) -> str:
    """A path as OpenSSH takes it back from a configuration, where `%` begins a token. Raises ConfigError."""
    if not is_ssh_word(path):
        # The rack file was validated when it was loaded; this is the folder for temporary files.
        place = printable_line(str(path))
        raise ConfigError(
            [ConfigProblem(place, None, "", "cannot stand in an OpenSSH configuration", f"set TMPDIR {SSH_WORD}")]
        )
    return f'"{str(path).replace("%", "%%")}"'
