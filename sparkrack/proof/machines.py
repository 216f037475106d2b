"""How a proof reaches the nodes: testinfra over OpenSSH, not the transport that made the changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import testinfra

from sparkrack.fleet import Rack

Machine = Any
"""testinfra's host: `run`, `check_output`, `file`, `sysctl`. It has no types."""


class Machines:
    """The nodes of a rack, each behind one ssh connection that is kept for the whole proof."""

    def __init__(self, rack: Rack, folder: Path) -> None:
        """`folder`: private, short-lived; holds the ssh configuration and the control sockets."""
        self._rack = rack
        self._config = folder / "ssh_config"
        self._config.write_text(ssh_config(rack, folder))
        self._machines: dict[str, Machine] = {}

    def __getitem__(self, node: str) -> Machine:
        if node not in self._machines:
            # `sudo` with a password prompt would hang: -n makes it fail instead, which is an answer.
            self._machines[node] = testinfra.get_host(f"ssh://{node}?ssh_config={self._config}&sudo=true")
        return self._machines[node]


def ssh_config(rack: Rack, folder: Path) -> str:
    """An OpenSSH configuration that knows the nodes by name, trusts only the rack's known_hosts and asks nothing."""
    common = f"""\
Host *
  User {rack.access.user}
  Port {rack.access.port}
  IdentityFile "{rack.access.key}"
  IdentitiesOnly yes
  UserKnownHostsFile "{rack.access.known_hosts}"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 15
  LogLevel ERROR
  ControlMaster auto
  ControlPath "{folder}/%C"
  ControlPersist 60
"""
    return "".join(f"Host {name}\n  HostName {node.address}\n" for name, node in rack.nodes.items()) + common
