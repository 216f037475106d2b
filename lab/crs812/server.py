"""The unit's doors: which are open, whom they let in, and who is inside."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from .config import SwitchConfig
from .device import CERTIFICATE, Device
from .doors import Door, NoTlsError, Serve
from .faults import Faults
from .journal import Journal
from .menu import Values
from .rest_session import RestSession
from .session import Session
from .store import Action

SERVICE = "/ip/service"


@dataclass(frozen=True)
class Ports:
    """Where the unit listens; None: that service has no port here."""

    plain: int
    tls: int
    www: int | None
    rest: int | None


class Server:
    """Keeps the doors as /ip/service says, and the connections by their service."""

    def __init__(self, device: Device, faults: Faults, journal: Journal) -> None:
        self._device, self._faults, self._journal = device, faults, journal
        self._doors: dict[str, Door] = {}
        self._tasks: dict[asyncio.Task[None], tuple[str, asyncio.StreamWriter]] = {}
        self._count = 0

    async def start(self, config: SwitchConfig) -> Ports:
        """Bind every port, open what is enabled. Raises OSError."""
        wanted: dict[str, int | None] = {"api": config.api_port, "api-ssl": config.tls_port}
        wanted |= {"www": config.www_port, "www-ssl": config.www_ssl_port}
        for service, port in wanted.items():
            if port is not None:
                tls = self._securer(service) if service.endswith("-ssl") else None
                self._doors[service] = Door(
                    str(config.address), port, self._admitter(service), self._server(service), tls
                )
        self._device.store.observers.append(self._heard)
        self._device.resets.append(self.refresh)
        self.refresh()
        ports = {service: door.port for service, door in self._doors.items()}
        return Ports(ports["api"], ports["api-ssl"], ports.get("www"), ports.get("www-ssl"))

    def refresh(self) -> None:
        """Open and shut doors as /ip/service says now."""
        for service, door in self._doors.items():
            row = self._row(service)
            if row is not None and row["disabled"] == "false":
                door.open()
            else:
                door.shut()

    def disconnect(self) -> int:
        """Cut every connection without a word, as a lost network would; gives how many there were."""
        for _service, writer in self._tasks.values():
            writer.transport.abort()
        return len(self._tasks)

    async def stop(self) -> None:
        """Close doors and connections, and wait for the sessions to end."""
        for door in self._doors.values():
            await door.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _heard(self, action: Action) -> None:
        if any(change.path == SERVICE for change in action.changes):
            self.refresh()

    def _row(self, service: str) -> Values | None:
        row = self._device.store.find(SERVICE, service)
        return row.values if row is not None else None

    def _server(self, service: str) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._count += 1
            task = asyncio.create_task(self._session(service, reader, writer))
            self._tasks[task] = (service, writer)
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

        return serve

    def _session(
        self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[None, None, None]:
        kind = RestSession if service.startswith("www") else Session
        return kind(self._count, self._device, self._faults, self._journal, reader, writer, service).run()

    def _admitter(self, service: str) -> Callable[[str], bool]:
        def admits(peer: str) -> bool:
            """A peer outside ``address`` or one session too many is hung up on at once."""
            row = self._row(service)
            if row is None:
                return False
            allowed = [ipaddress.ip_network(text) for text in row.get("address", "").split(",") if text]
            allowed += self._device.config.let_in if allowed else ()
            if allowed and not any(ipaddress.ip_address(peer) in network for network in allowed):
                return False
            open_now = sum(1 for name, _writer in self._tasks.values() if name == service)
            if open_now >= int(row["max-sessions"]):
                return False
            self._device.neighbours.seen(peer)
            return True

        return admits

    def _securer(self, service: str) -> Callable[[], ssl.SSLContext]:
        def secure() -> ssl.SSLContext:
            row = self._row(service) or {}
            found = self._device.store.find(CERTIFICATE, row.get("certificate") or "none")
            try:
                return self._device.vault.context(found.id if found else 0, only_1_2=row.get("tls-version") != "any")
            except (KeyError, OSError):
                raise NoTlsError(service) from None

        return secure
