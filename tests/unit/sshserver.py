"""An ssh server in this process, on loopback, with configurable behaviour."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod

import paramiko


class AnyKey(paramiko.ServerInterface):
    """Lets every key in and opens every channel."""

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - the arguments are paramiko's
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002
        return int(paramiko.common.AUTH_SUCCESSFUL)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        return int(paramiko.common.OPEN_SUCCEEDED)


class SshServer(ABC):
    """Listens until it is closed. `port`: 0 for any; `key`: its host key; `commands`: received commands."""

    def __init__(self, address: str, port: int = 0) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self.commands: list[str] = []
        self.transports: list[paramiko.Transport] = []
        self._listening = socket.create_server((address, port))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve_connections, daemon=True)
        self._thread.start()

    @abstractmethod
    def behind(self, transport: paramiko.Transport) -> AnyKey:
        """Return the server interface of a connection."""

    def welcomes(self, connection: socket.socket) -> bool:  # noqa: ARG002 - one that does not may keep it
        """Return whether a connection is answered."""
        return True

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)
        for transport in self.transports:
            transport.close()

    def _serve_connections(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            if not self.welcomes(connection):
                continue
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.key)
            self.transports.append(transport)
            try:
                transport.start_server(server=self.behind(transport))
            except (paramiko.SSHException, EOFError, OSError):
                continue  # the client only looked, or did not like the key
