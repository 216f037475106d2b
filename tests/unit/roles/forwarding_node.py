"""A node that is an ssh server of this process: it connects a client of ssh to ports of loopback on the node."""

from __future__ import annotations

import socket
import threading
from ipaddress import IPv4Address
from pathlib import Path

import paramiko

from tests.unit.sshserver import AnyKey, SshServer


class ForwardingNode(SshServer):
    """The server. `loopback`: what stands for 127.0.0.1 of the node. `asked`: the places that clients asked for."""

    def __init__(self, address: IPv4Address, loopback: IPv4Address) -> None:
        self.loopback = loopback
        self.asked: list[tuple[str, int]] = []
        super().__init__(str(address))

    def access(self, folder: Path, address: IPv4Address) -> str:
        """Write a key and known_hosts for clients, and return the section `access` with them."""
        paramiko.ECDSAKey.generate().write_private_key_file(str(folder / "key"))
        line = f"[{address}]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"
        (folder / "known_hosts").write_text(line)
        return f"access: {{user: ops, port: {self.port}, key: {folder}/key, known_hosts: {folder}/known_hosts}}\n"

    def behind(self, transport: paramiko.Transport) -> AnyKey:
        server = _Server(self)
        threading.Thread(target=self._connect_channels, args=(transport, server), daemon=True).start()
        return server

    def _connect_channels(self, transport: paramiko.Transport, server: _Server) -> None:
        # It is not active yet when this begins.
        while (channel := transport.accept(1)) or transport.is_active():
            if channel is not None:
                port = server.ports[channel.get_id()]
                far = socket.create_connection((str(self.loopback), port))
                threading.Thread(target=_copy_stream, args=(channel, far), daemon=True).start()
                threading.Thread(target=_copy_stream, args=(far, channel), daemon=True).start()


class _Server(AnyKey):
    def __init__(self, node: ForwardingNode) -> None:
        self.node = node
        self.ports: dict[int, int] = {}

    def check_channel_direct_tcpip_request(
        self,
        chanid: int,
        origin: tuple[str, int],  # noqa: ARG002 - the arguments are paramiko's
        destination: tuple[str, int],
    ) -> int:
        self.node.asked.append(destination)
        self.ports[chanid] = destination[1]
        return int(paramiko.common.OPEN_SUCCEEDED)


def _copy_stream(one: socket.socket | paramiko.Channel, other: socket.socket | paramiko.Channel) -> None:
    try:
        while part := one.recv(65536):
            other.sendall(part)
    except OSError:
        pass
    finally:
        one.close()
        other.close()
