"""The unit's services: open listeners, admission of peers, and active connections."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from lab.routeros_emulator.config import SwitchConfig
from lab.routeros_emulator.device import CERTIFICATE, EmulatedDevice
from lab.routeros_emulator.faults import InjectedFaults
from lab.routeros_emulator.journal import CommandJournal
from lab.routeros_emulator.listeners import NoTlsError, Serve, ServiceListener
from lab.routeros_emulator.menu import Values
from lab.routeros_emulator.own_addresses import AddressError, LinkAddresses, NoAddresses, OwnAddresses
from lab.routeros_emulator.rest_session import RestSession
from lab.routeros_emulator.session import EmulatedSession
from lab.routeros_emulator.store import StoreAction

SERVICE, ADDRESS = "/ip/service", "/ip/address"


@dataclass(frozen=True)
class Ports:
    """Ports of the unit; None: that service has no port here."""

    plain: int
    tls: int
    www: int | None
    rest: int | None


class Server:
    """Keeps the listeners in sync with /ip/service and, if ``follow`` is set, /ip/address, and the connections by their
    service.
    """

    def __init__(self, device: EmulatedDevice, faults: InjectedFaults, journal: CommandJournal) -> None:
        self._device, self._faults, self._journal = device, faults, journal
        self._ports: dict[str, int] = {}
        self._listeners: dict[tuple[str, str], ServiceListener] = {}
        self._tasks: dict[asyncio.Task[None], tuple[str, asyncio.StreamWriter]] = {}
        self._count = 0
        link = device.config.link
        self._homes: OwnAddresses = LinkAddresses(link) if link else NoAddresses()

    async def start(self, config: SwitchConfig) -> Ports:
        """Bind every port, open what is enabled. Raises OSError."""
        wanted: dict[str, int | None] = {"api": config.api_port, "api-ssl": config.tls_port}
        wanted |= {"www": config.www_port, "www-ssl": config.www_ssl_port}
        self._ports = {service: port for service, port in wanted.items() if port is not None}
        self._device.store.observers.append(self._follow_action)
        self._device.resets.append(self.refresh)
        self.refresh()
        ports = self._ports
        return Ports(ports["api"], ports["api-ssl"], ports.get("www"), ports.get("www-ssl"))

    def refresh(self) -> None:
        """Update the addresses from /ip/address; open and close listeners as in /ip/service."""
        addresses = self._list_addresses()
        for place in [place for place in self._listeners if place[1] not in addresses]:
            self._listeners.pop(place).leave()
        self._drop_connections(addresses)
        try:
            self._homes.keep(addresses)
        except AddressError as error:
            self._device.tell("system,error", f"{error}")
        for address in addresses:
            for service in self._ports:
                self._see_to(service, address)

    def _list_addresses(self) -> list[str]:
        config = self._device.config
        if not config.follow:
            return [str(config.address)]
        rows = [row.values for row in self._device.store.rows(ADDRESS)]
        return [str(ipaddress.IPv4Interface(row["address"]).ip) for row in rows if row["disabled"] == "false"]

    def _see_to(self, service: str, address: str) -> None:
        """Update one service at one address. Raises OSError when the port is not available, unless the unit follows:
        then the address may be one that this machine does not accept, which is logged and does not affect the others.
        """
        row, listener = self._service_row(service), self._listeners.get((service, address))
        try:
            if listener is None:
                tls = self._make_tls(service) if service.endswith("-ssl") else None
                port = self._ports[service]
                listener = ServiceListener(
                    address, port, self._make_admission(service), self._make_server(service), tls
                )
                self._listeners[service, address] = listener
                self._ports[service] = listener.port  # a port chosen by the system is the same for all addresses
            if row is not None and row["disabled"] == "false":
                listener.open()
            else:
                listener.shut()
        except OSError as error:
            if not self._device.config.follow:
                raise
            self._device.tell("system,error", f"{service} at {address}: {error.strerror}")

    def _drop_connections(self, addresses: list[str]) -> None:
        """End connections to a removed address silently. RouterOS notices that after a timeout; here it happens at
        once, after the sentence that removed the address was answered.
        """
        for _service, writer in self._tasks.values() if self._device.config.follow else ():
            if writer.get_extra_info("sockname")[0] not in addresses:
                asyncio.get_running_loop().call_soon(writer.transport.abort)

    def disconnect(self) -> int:
        """Cut every connection without a word, as a lost network would; gives how many there were."""
        for _service, writer in self._tasks.values():
            writer.transport.abort()
        return len(self._tasks)

    async def stop(self) -> None:
        """Close listeners and connections, and wait for the sessions to end."""
        for listener in self._listeners.values():
            await listener.close()
        try:
            self._homes.keep(())
        except AddressError as error:
            self._device.tell("system,error", f"{error}")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow_action(self, action: StoreAction) -> None:
        paths = {change.path for change in action.changes}
        if SERVICE in paths or (ADDRESS in paths and self._device.config.follow):
            self.refresh()

    def _service_row(self, service: str) -> Values | None:
        row = self._device.store.find(SERVICE, service)
        return row.values if row is not None else None

    def _make_server(self, service: str) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._count += 1
            task = asyncio.create_task(self._run_session(service, reader, writer))
            self._tasks[task] = (service, writer)
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

        return serve

    def _run_session(
        self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[None, None, None]:
        kind = RestSession if service.startswith("www") else EmulatedSession
        return kind(self._count, self._device, self._faults, self._journal, reader, writer, service).run()

    def _make_admission(self, service: str) -> Callable[[str], bool]:
        def admits(peer: str) -> bool:
            """A peer outside ``address`` or one session too many is hung up on at once."""
            row = self._service_row(service)
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

    def _make_tls(self, service: str) -> Callable[[], ssl.SSLContext]:
        def secure() -> ssl.SSLContext:
            row = self._service_row(service) or {}
            found = self._device.store.find(CERTIFICATE, row.get("certificate") or "none")
            try:
                return self._device.vault.context(found.id if found else 0, only_1_2=row.get("tls-version") != "any")
            except (KeyError, OSError):
                raise NoTlsError(service) from None

        return secure
