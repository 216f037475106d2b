"""One service's TCP port: open while the service is enabled, TLS with the certificate that it has by then."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

#: How long (s) a client may take for its TLS handshake.
HANDSHAKE_SECONDS = 20.0


class NoTlsError(Exception):
    """The service has no certificate to show."""


class ServiceListener:
    """Accepts connections at one address and port.

    ``admits`` checks a peer's address when it connects; a refused peer is disconnected at once. ``secure`` returns the
    current TLS, or raises NoTlsError: then the handshake fails. None means no TLS. ``serve`` gets the connection and
    owns it.
    """

    def __init__(
        self,
        address: str,
        port: int,
        admits: Callable[[str], bool],
        serve: Serve,
        secure: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._admits, self._serve, self._secure = admits, serve, secure
        # Bound but never listening: it reserves the port while the service is off, and peers are refused.
        self._place = _bind_socket(address, port)
        self._address, self.port = address, int(self._place.getsockname()[1])
        self._listener: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self._taking: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Take connections from now on. Raises OSError."""
        if self._socket is None:
            self._socket = _bind_socket(self._address, self.port)
            self._socket.listen(100)
            self._listener = asyncio.create_task(self._accept_connections(self._socket))

    def shut(self) -> None:
        """Refuse connections from now on; those that exist go on."""
        if self._listener is not None:
            self._listener.cancel()
        if self._socket is not None:
            # Before it is closed: the loop would otherwise remove the next socket with the same descriptor.
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = self._listener = None

    def leave(self) -> list[asyncio.Task[None]]:
        """Give the port back and let go of what has not been handed over yet; gives what is still ending."""
        self.shut()
        self._place.close()
        tasks = list(self._taking)
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """Give the port back and end what has not been handed over yet."""
        await asyncio.gather(*self.leave(), return_exceptions=True)

    async def _accept_connections(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError:
                # Too many open files, or a peer that went away in between: both pass.
                await asyncio.sleep(0.05)
                continue
            if not self._admits(str(peer[0])):
                connection.close()
                continue
            task = asyncio.create_task(self._take_connection(connection))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _take_connection(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            tls, patience = (None, None) if self._secure is None else (self._tls_context(), HANDSHAKE_SECONDS)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=patience
            )
        except (OSError, ConnectionError, TimeoutError):
            with suppress(OSError):
                connection.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        await self._serve(reader, writer)
        # How the connection ends is kept in a future, which complains when its exception was never asked for.
        with suppress(OSError):
            await writer.wait_closed()

    def _tls_context(self) -> ssl.SSLContext:
        assert self._secure is not None  # noqa: S101 - asked by its only caller
        try:
            return self._secure()
        except NoTlsError:
            # Without a certificate OpenSSL finds no shared cipher, and reports that.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _bind_socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setblocking(False)
    try:
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
