"""Ways into a node from inside the lab's namespace: with the operator's key, and with the password of a boxed node."""

from __future__ import annotations

import logging
import subprocess
from dataclasses import dataclass
from pathlib import Path

import paramiko

from lab import knownhosts
from lab import namespace as ns
from lab.boxed import WIZARD
from lab.errors import LabError
from lab.layout import Layout
from lab.node import VirtualNode
from lab.place import Place

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PASSWORD_SECONDS = 30.0
"""A virtual node on a busy machine takes seconds for a login; sshd gives up after 120."""

# A node that is not up yet is asked again; that it hung up is no news for the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Logins:
    """The nodes of a lab, to log in to."""

    layout: Layout
    place: Place

    def ssh(self, name: str) -> list[str]:
        """The ssh command that logs in as the operator, to be run inside the namespace. Raises LabError."""
        rack = self.layout.rack
        if name not in rack.nodes:
            raise LabError(f"{name} is not a node of this lab; there are {', '.join(rack.nodes)}")
        options = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.place.known_hosts,
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": 10,
            "LogLevel": "ERROR",
        }
        return [
            *("ssh", "-F", "none", "-i", str(self.place.key)),
            *(f"-o{key}={value}" for key, value in options.items()),
            f"{rack.access.user}@{rack.nodes[name].address}",
        ]

    def boot_id(self, name: str) -> str | None:
        """What names the node's present boot; None while it takes no logins, neither the operator's nor, if it is
        boxed, those of the wizard's user."""
        return self.operators_boot_id(name) or self.by_password(name, BOOT_ID)

    def operators_boot_id(self, name: str) -> str | None:
        """The same, told to the operator alone."""
        if self._node(name).boxed and not self._pinned(name):
            return None  # ssh would only say so after it asked the node
        done = self.inside([*self.ssh(name), BOOT_ID])
        return (done.stdout.strip() or None) if done.returncode == 0 else None

    def reboot(self, name: str) -> None:
        """Have the node restart as its owner would; it hangs up meanwhile."""
        self._systemctl(name, "reboot")

    def power_off(self, name: str) -> None:
        """Have the node shut down; it hangs up meanwhile."""
        self._systemctl(name, "poweroff")

    def _systemctl(self, name: str, verb: str) -> None:
        if self.operators_boot_id(name):
            self.inside([*self.ssh(name), "sudo", "systemctl", verb])
        else:
            self.by_password(name, f"sudo -S -p '' systemctl {verb}")

    def inside(self, command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside the namespace, as root."""
        enter = ["ip", "netns", "exec", self.place.namespace]
        return subprocess.run([*enter, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd)

    def _node(self, name: str) -> VirtualNode:
        return VirtualNode(name, self.layout, self.place)

    def _pinned(self, name: str) -> bool:
        file = self.place.known_hosts
        return file.exists() and knownhosts.knows(file.read_text(), str(self.layout.rack.nodes[name].address))

    def by_password(self, name: str, command: str) -> str | None:
        """What a command prints for the wizard's user, given the password on stdin; None when he is not let in.

        Whatever host key is shown is taken: the lab made the machine and the wire to it.
        """
        file = self._node(name).password
        if not file.exists():
            return None
        password = file.read_text().strip()
        connection = ns.connected(self.place.namespace, str(self.layout.rack.nodes[name].address), 22)
        if connection is None:
            return None
        transport = paramiko.Transport(connection)
        try:
            transport.start_client(timeout=PASSWORD_SECONDS)
            transport.auth_timeout = PASSWORD_SECONDS
            transport.auth_password(WIZARD, password)
            channel = transport.open_session(timeout=PASSWORD_SECONDS)
            channel.settimeout(PASSWORD_SECONDS)
            channel.exec_command(command)
            channel.sendall(f"{password}\n".encode())
            channel.shutdown_write()
            said = channel.makefile("rb").read().decode(errors="replace").strip()
            return said if channel.recv_exit_status() == 0 else None
        except (paramiko.SSHException, OSError, EOFError):
            return None
        finally:
            transport.close()
