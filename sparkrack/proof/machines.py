"""How a proof reaches the nodes: testinfra over OpenSSH, not the transport that made the changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testinfra.host import Host

from sparkrack.fleet import Access, Fault, Rack, RackError, regular
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.scalars import SSH_WORD, is_ssh_word
from sparkrack.proof.shell import RootShell

Machine = Any
"""testinfra's host: `run`, `check_output`, `file`, `sysctl`. It has no types."""


class Machines:
    """The nodes of a rack, each behind one root shell that is kept for the whole proof."""

    def __init__(self, rack: Rack, folder: Path) -> None:
        """`folder`: private, short-lived; holds the ssh configuration."""
        self._rack = rack
        self._config = folder / "ssh_config"
        self._config.write_text(ssh_config(rack), errors="surrogateescape")
        self._shells: dict[str, RootShell] = {}
        self._machines: dict[str, Machine] = {}

    def __getitem__(self, node: str) -> Machine:
        if node not in self._machines:
            shell = self._shells[node] = RootShell(node, self._config)
            self._machines[node] = Host(shell)
            shell.set_host(self._machines[node])
        return self._machines[node]

    def close(self) -> None:
        """End every shell."""
        for shell in self._shells.values():
            shell.close()


def ssh_config(rack: Rack) -> str:
    """An OpenSSH configuration that knows the nodes by name, trusts only the rack's known_hosts and asks nothing.

    Raises RackError when a file that ssh would read is a FIFO, for which it would wait, or another kind of thing.
    """
    for name, path in (("key", rack.access.key), ("known_hosts", rack.access.known_hosts)):
        if what := regular.odd(path):
            what = f"{one_line(str(path))}: {what}"
            raise RackError([Fault(str(rack.source), None, f"access.{name}", what, "name a regular file")])
    return configured(rack.access, {name: node.address for name, node in rack.nodes.items()})


def configured(access: Access, addresses: Mapping[str, object]) -> str:
    """The same for machines by name and address, whether or not a rack file has them."""
    common = f"""\
Host *
  User {access.user}
  Port {access.port}
  IdentityFile {_quoted(access.key)}
  IdentitiesOnly yes
  UserKnownHostsFile {_quoted(access.known_hosts)}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 15
  LogLevel ERROR
"""
    return "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items()) + common


def _quoted(path: Path) -> str:
    """A path as OpenSSH takes it back from a configuration, where `%` begins a token. Raises RackError."""
    if not is_ssh_word(path):
        # What the rack file says was judged when it was loaded; this is the folder for temporary files.
        place = one_line(str(path))
        raise RackError([Fault(place, None, "", "cannot stand in an OpenSSH configuration", f"set TMPDIR {SSH_WORD}")])
    return f'"{str(path).replace("%", "%%")}"'
