"""The listening side: the plain port, the TLS port, and what /ip/service allows on them."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable

from .config import SwitchConfig
from .device import Device
from .faults import Faults
from .journal import Journal
from .session import Session

SERVICE = "/ip/service"


class Server:
    """Accepts API connections and keeps track of them."""

    def __init__(self, device: Device, faults: Faults, journal: Journal) -> None:
        self._device, self._faults, self._journal = device, faults, journal
        self._listeners: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[None], tuple[str, asyncio.StreamWriter]] = {}
        self._count = 0

    async def start(self, config: SwitchConfig) -> tuple[int, int | None]:
        """Listen and give the plain and the TLS port. Raises OSError (ssl.SSLError included)."""
        address = str(config.address)
        plain = await asyncio.start_server(self._taker("api"), address, config.api_port)
        self._listeners.append(plain)
        if config.tls_cert is None or config.tls_key is None:
            return _port(plain), None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config.tls_cert, config.tls_key)
        secure = await asyncio.start_server(self._taker("api-ssl"), address, config.tls_port, ssl=context)
        self._listeners.append(secure)
        return _port(plain), _port(secure)

    def disconnect(self) -> int:
        """Cut every connection without a word, as a lost network would; gives how many there were."""
        for _service, writer in self._tasks.values():
            writer.transport.abort()
        return len(self._tasks)

    async def stop(self) -> None:
        """Close listeners and connections, and wait for the sessions to end."""
        for listener in self._listeners:
            listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _taker(self, service: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not self._allowed(service, writer):
                writer.close()
                return
            self._count += 1
            session = Session(self._count, self._device, self._faults, self._journal, reader, writer, service)
            task = asyncio.create_task(session.run())
            self._tasks[task] = (service, writer)
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

        return take

    def _allowed(self, service: str, writer: asyncio.StreamWriter) -> bool:
        """A disabled service, a peer outside ``address`` or one session too many is hung up on at once."""
        row = self._device.store.find(SERVICE, service)
        if row is None or row.values["disabled"] == "true":
            return False
        peer = ipaddress.ip_address(writer.get_extra_info("peername")[0])
        allowed = [ipaddress.ip_network(text) for text in row.values.get("address", "").split(",") if text]
        if allowed and not any(peer in network for network in allowed):
            return False
        open_now = sum(1 for name, _writer in self._tasks.values() if name == service)
        return open_now < int(row.values["max-sessions"])


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])
