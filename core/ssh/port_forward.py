"""Ports of loopback on a node, reached by whom the node lets log in; no port is opened on this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.model import Rack
from core.ssh.client import ssh_config
from core.ssh.node_shells import ssh_config_file
from core.ssh.root_shell import UnreachableError

START_SECONDS = 30
"""Longest time in seconds until ssh has logged in."""


class PortForward:
    """A socket in a private folder for each port, connected by one ssh, which is started again after it has ended."""

    def __init__(self, node: str, config: Path, ports: Iterable[int]) -> None:
        """`config`: the OpenSSH configuration that knows `node`; its folder gets the sockets."""
        self.node = node
        self._sockets = {port: config.with_name(str(port)) for port in ports}
        words = [f"-L{path}:127.0.0.1:{port}" for port, path in self._sockets.items()]
        options = ("-oExitOnForwardFailure=yes", "-oStreamLocalBindUnlink=yes")
        self._command = ["ssh", "-F", str(config), "-N", *options, *words, node]
        self._ssh: subprocess.Popen[bytes] | None = None

    def socket(self, port: int) -> Path:
        """Return the socket of a port, once ssh has logged in. Raises UnreachableError."""
        if self._ssh is None or self._ssh.poll() is not None:
            self._wait_for_sockets()
        return self._sockets[port]

    def close(self) -> None:
        """End ssh."""
        ssh, self._ssh = self._ssh, None
        if ssh is not None:
            ssh.terminate()
            ssh.communicate()

    def _wait_for_sockets(self) -> None:
        self.close()
        for path in self._sockets.values():
            path.unlink(missing_ok=True)
        self._ssh = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        end = time.monotonic() + START_SECONDS
        while not all(path.exists() for path in self._sockets.values()):
            if self._ssh.poll() is not None:
                ended, self._ssh = self._ssh, None
                lines = ended.communicate()[1].decode(errors="replace").strip().splitlines()
                raise UnreachableError(self.node, lines[-1] if lines else "the connection ended")
            if time.monotonic() > end:
                self.close()
                raise UnreachableError(self.node, f"no login within {START_SECONDS} s")
            time.sleep(0.05)


@contextmanager
def forwarded_ports(rack: Rack, node: str, ports: Iterable[int]) -> Iterator[PortForward]:
    """Ports of a node of a rack while the block runs; ssh is started by the first that is asked for.

    Raises ConfigError when the rack's key or known_hosts is a special file.
    """
    with ssh_config_file(ssh_config(rack)) as config:
        forward = PortForward(node, config, ports)
        try:
            yield forward
        finally:
            forward.close()
