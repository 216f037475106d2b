"""Ways into a node from inside the lab's namespace: with the operator's key, and with the factory password."""

from __future__ import annotations

import logging
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko

from lab import known_hosts
from lab import namespace as ns
from lab.errors import LabError
from lab.first_boot import WIZARD
from lab.layout import Layout
from lab.node import VirtualNode
from lab.paths import LabPaths

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PASSWORD_SECONDS = 30.0
"""A virtual node on a busy machine takes seconds for a login; sshd gives up after 120."""

# A node that is not up yet is asked again; that it hung up is not news for the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Logins:
    """Logins to the nodes of a lab."""

    layout: Layout
    paths: LabPaths

    def ssh(self, name: str) -> list[str]:
        """The ssh command that logs in as the operator, to be run inside the namespace. Raises LabError."""
        rack = self.layout.rack
        if name not in rack.nodes:
            raise LabError(f"{name} is not a node of this lab; there are {', '.join(rack.nodes)}")
        options = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.paths.known_hosts,
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": 10,
            "LogLevel": "ERROR",
        }
        return [
            *("ssh", "-F", "none", "-i", str(self.paths.key)),
            *(f"-o{key}={value}" for key, value in options.items()),
            f"{rack.access.user}@{rack.nodes[name].address}",
        ]

    def boot_id(self, name: str) -> str | None:
        """Return the ID of the node's present boot; None while it accepts no login, neither the operator's nor, if it
        is in factory state, that of the wizard's user.
        """
        return self.boot_id_by_key(name) or self.run_by_password(name, BOOT_ID)

    def boot_id_by_key(self, name: str) -> str | None:
        """Return the same with the operator's login only."""
        if self._virtual_node(name).in_factory_state and not self._is_pinned(name):
            return None  # ssh would report it only after it asked the node
        done = self.inside([*self.ssh(name), BOOT_ID])
        return (done.stdout.strip() or None) if done.returncode == 0 else None

    def reboot(self, name: str) -> None:
        """Restart the node from inside; it closes the connection."""
        self._run_systemctl(name, "reboot")

    def power_off(self, name: str) -> None:
        """Shut the node down; it closes the connection."""
        self._run_systemctl(name, "poweroff")

    def _run_systemctl(self, name: str, verb: str) -> None:
        if self.boot_id_by_key(name):
            self.inside([*self.ssh(name), "sudo", "systemctl", verb])
        else:
            self.run_by_password(name, f"sudo -S -p '' systemctl {verb}")

    def inside(self, command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside the namespace, as root."""
        enter = ["ip", "netns", "exec", self.paths.namespace]
        return subprocess.run([*enter, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd)

    def _virtual_node(self, name: str) -> VirtualNode:
        return VirtualNode(name, self.layout, self.paths)

    def _is_pinned(self, name: str) -> bool:
        file = self.paths.known_hosts
        return file.exists() and known_hosts.knows(file.read_text(), str(self.layout.rack.nodes[name].address))

    def run_by_password(self, name: str, command: str) -> str | None:
        """Return the output of a command for the wizard's user, with the password on stdin; None when the login fails.

        Any host key is accepted: the lab created the machine and the wire to it.
        """
        file = self._virtual_node(name).password
        if not file.exists():
            return None
        password = file.read_text().strip()
        connection = ns.connected(self.paths.namespace, str(self.layout.rack.nodes[name].address), 22)
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
            with suppress(OSError):  # a command that does not read its input may have ended before
                channel.sendall(f"{password}\n".encode())
                channel.shutdown_write()
            output = channel.makefile("rb").read().decode(errors="replace").strip()
            return output if channel.recv_exit_status() == 0 else None
        except (paramiko.SSHException, OSError, EOFError):
            return None
        finally:
            transport.close()
