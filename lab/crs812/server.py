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
from .homes import HomeError, Homes, LinkHomes, NullHomes
from .journal import Journal
from .menu import Values
from .rest_session import RestSession
from .session import Session
from .store import Action

SERVICE, ADDRESS = "/ip/service", "/ip/address"


@dataclass(frozen=True)
class Ports:
    """Where the unit listens; None: that service has no port here."""

    plain: int
    tls: int
    www: int | None
    rest: int | None


class Server:
    """Keeps the doors as /ip/service and, if it follows that, /ip/address say, and the connections by their service."""

    def __init__(self, device: Device, faults: Faults, journal: Journal) -> None:
        self._device, self._faults, self._journal = device, faults, journal
        self._ports: dict[str, int] = {}
        self._doors: dict[tuple[str, str], Door] = {}
        self._tasks: dict[asyncio.Task[None], tuple[str, asyncio.StreamWriter]] = {}
        self._count = 0
        link = device.config.link
        self._homes: Homes = LinkHomes(link) if link else NullHomes()

    async def start(self, config: SwitchConfig) -> Ports:
        """Bind every port, open what is enabled. Raises OSError."""
        wanted: dict[str, int | None] = {"api": config.api_port, "api-ssl": config.tls_port}
        wanted |= {"www": config.www_port, "www-ssl": config.www_ssl_port}
        self._ports = {service: port for service, port in wanted.items() if port is not None}
        self._device.store.observers.append(self._heard)
        self._device.resets.append(self.refresh)
        self.refresh()
        ports = self._ports
        return Ports(ports["api"], ports["api-ssl"], ports.get("www"), ports.get("www-ssl"))

    def refresh(self) -> None:
        """Be reachable where /ip/address says; open and shut doors as /ip/service says now."""
        addresses = self._addresses()
        for place in [place for place in self._doors if place[1] not in addresses]:
            self._doors.pop(place).leave()
        self._lose(addresses)
        try:
            self._homes.keep(addresses)
        except HomeError as error:
            self._device.tell("system,error", f"{error}")
        for address in addresses:
            for service in self._ports:
                self._see_to(service, address)

    def _addresses(self) -> list[str]:
        config = self._device.config
        if not config.follow:
            return [str(config.address)]
        rows = [row.values for row in self._device.store.rows(ADDRESS)]
        return [str(ipaddress.IPv4Interface(row["address"]).ip) for row in rows if row["disabled"] == "false"]

    def _see_to(self, service: str, address: str) -> None:
        """One service at one address. Raises OSError when the port cannot be had, unless the unit follows: then the
        address may be one that this machine does not take, which is told and leaves the others."""
        row, door = self._row(service), self._doors.get((service, address))
        try:
            if door is None:
                tls = self._securer(service) if service.endswith("-ssl") else None
                port = self._ports[service]
                door = Door(address, port, self._admitter(service), self._server(service), tls)
                self._doors[service, address] = door
                self._ports[service] = door.port  # one that the system chose is the same everywhere
            if row is not None and row["disabled"] == "false":
                door.open()
            else:
                door.shut()
        except OSError as error:
            if not self._device.config.follow:
                raise
            self._device.tell("system,error", f"{service} at {address}: {error.strerror}")

    def _lose(self, addresses: list[str]) -> None:
        """Connections to an address that is gone end without a word. RouterOS finds that out when nobody answers for
        long enough; here it does at once, after the sentence that took the address away was answered."""
        for _service, writer in self._tasks.values() if self._device.config.follow else ():
            if writer.get_extra_info("sockname")[0] not in addresses:
                asyncio.get_running_loop().call_soon(writer.transport.abort)

    def disconnect(self) -> int:
        """Cut every connection without a word, as a lost network would; gives how many there were."""
        for _service, writer in self._tasks.values():
            writer.transport.abort()
        return len(self._tasks)

    async def stop(self) -> None:
        """Close doors and connections, and wait for the sessions to end."""
        for door in self._doors.values():
            await door.close()
        try:
            self._homes.keep(())
        except HomeError as error:
            self._device.tell("system,error", f"{error}")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _heard(self, action: Action) -> None:
        paths = {change.path for change in action.changes}
        if SERVICE in paths or (ADDRESS in paths and self._device.config.follow):
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
