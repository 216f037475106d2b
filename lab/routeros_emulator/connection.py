"""One connection of a client to the emulated switch, whatever it speaks."""

from __future__ import annotations

import asyncio

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.dispatch import give_as_administrator
from lab.routeros_emulator.faults import InjectedFault, InjectedFaults
from lab.routeros_emulator.journal import CommandJournal
from lab.routeros_emulator.request import RequestClient


class EmulatedConnection:
    """Whose connection it is, and what it works on. `service`: of /ip/service, by its name."""

    def __init__(
        self,
        number: int,
        device: EmulatedDevice,
        faults: InjectedFaults,
        journal: CommandJournal,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: str,
    ) -> None:
        self._number, self._device, self._faults, self._journal = number, device, faults, journal
        self._reader, self._writer, self._service = reader, writer, service
        peer = writer.get_extra_info("peername") or ("?", 0)
        self._peer, self._port = str(peer[0]), int(peer[1])
        self._client: RequestClient | None = None

    async def _goes_on_after(self, fault: InjectedFault) -> bool:
        """Apply a fault after which the command is carried out, and return whether it is one: a delay, or what an
        administrator does meanwhile.
        """
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.kind == "admin":
            give_as_administrator(self._device, fault.sentences)
        return fault.kind in ("delay", "admin")
