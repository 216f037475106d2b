"""Control socket for tests: a unix-domain socket with one JSON request and one JSON answer a line.

README.md lists the requests. Every answer has ``ok``; a refused request has the reason in ``error``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from lab.routeros_emulator.cabling import DEAF, PLUGGED, PULLED
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.faults import InjectedFaults
from lab.routeros_emulator.journal import CommandJournal
from lab.routeros_emulator.print_verbs import listing
from lab.routeros_emulator.server import Server

Request = dict[str, Any]
_CABLE_STATES = {"pull": PULLED, "plug": PLUGGED, "deafen": DEAF}


class Control:
    """Answers control requests."""

    def __init__(self, device: EmulatedDevice, faults: InjectedFaults, journal: CommandJournal, server: Server) -> None:
        self._faults, self._journal = faults, journal
        self.attach(device, server)
        self._listener: asyncio.Server | None = None
        self._operations: dict[str, Callable[[Request], Request]] = {
            "stats": lambda _request: dict(self._journal.stats()),
            "state": self._give_state,
            "fault": self._add_fault,
            "heal": self._clear_faults,
            "cable": self._move_cable,
            "settle": self._set_settle_time,
            "unroll_delay": self._unroll_delay,
            "counters": self._add_to_counters,
            "stale": self._lose_offload,
            "retrain": self._set_retraining,
            "quiet": self._set_quiet,
            "sensor": self._set_sensor,
            "monitor": self._set_monitor_word,
            "learn": self._move_neighbour,
            "file": self._write_file,
            "pass": self._skip_time,
            "clock": self._shift_clock,
            "flash": self._set_free_space,
            "hosts": self._add_learned_hosts,
            "reset": self._reset_unit,
            "rewire": self._rewire_links,
            "disconnect": lambda _request: {"sessions": self._server.disconnect()},
        }

    def attach(self, device: EmulatedDevice, server: Server) -> None:
        """Answer for this device from now on: the unit was restarted."""
        self._device, self._server = device, server

    async def start(self, path: Path) -> None:
        """Listen on a socket file that only this user may open; one left by an earlier run is replaced."""
        path.unlink(missing_ok=True)
        self._listener = await asyncio.start_unix_server(self._serve_requests, path)
        path.chmod(0o600)

    def stop(self) -> None:
        """Take no further requests."""
        if self._listener is not None:
            self._listener.close()

    def answer(self, line: bytes) -> Request:
        """Carry out one request."""
        try:
            request = json.loads(line)
            operation = self._operations[request.pop("op")]
            return {"ok": True, **operation(request)}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}

    async def _serve_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(self.answer(line)).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _give_state(self, _request: Request) -> Request:
        device = self._device
        stored = [menu for menu in device.menus.values() if menu.rows is None]
        links = {name: device.links.status(name) for name in device.links.downs}
        holder = device.safe_mode.holder
        return {
            "tables": {menu.path: list(listing(device, menu)) for menu in stored},
            "links": {n: {"status": s.status, "why": s.why, "downs": device.links.downs[n]} for n, s in links.items()},
            "attached": device.links.attached,
            "safe_mode": {"holder": holder and holder.owner, "pending": len(device.safe_mode.pending)},
            "cables": [
                {"cage": s.cage, "lane": s.lane, "node": s.node, "port": s.port, "state": s.state, "powered": s.powered}
                for s in device.links.plant.sockets
            ],
        }

    def _add_fault(self, request: Request) -> Request:
        self._faults.add(request)
        return {}

    def _clear_faults(self, _request: Request) -> Request:
        self._faults.clear()
        self._device.planted_words.clear()
        return {}

    def _rewire_links(self, _request: Request) -> Request:
        self._device.links.rewire()
        return {}

    def _move_cable(self, request: Request) -> Request:
        links = self._device.links
        socket = links.plant.find(request["cage"], request["lane"])
        cages = {socket.cage}
        if request["do"] == "swap":
            other = links.plant.find(request["to"]["cage"], request["to"]["lane"])
            links.plant.swap(socket, other)
            cages.add(other.cage)
        else:
            socket.state = _CABLE_STATES[request["do"]]
        links.restart(cages)
        return {}

    def _add_to_counters(self, request: Request) -> Request:
        self._device.chip.bump(request["interface"], request["add"])
        return {}

    def _lose_offload(self, request: Request) -> Request:
        self._device.chip.lose_offload(request["interface"])
        return {}

    def _set_retraining(self, request: Request) -> Request:
        self._device.chip.retrains = bool(request.get("stale", True))
        return {}

    def _set_quiet(self, request: Request) -> Request:
        self._device.chip.quiet = bool(request.get("quiet", True))
        return {}

    def _set_sensor(self, request: Request) -> Request:
        self._device.sensors[str(request["name"])] = str(request["value"])
        return {}

    def _set_monitor_word(self, request: Request) -> Request:
        field, value = request["field"], request.get("value")
        if not isinstance(field, str) or not (value is None or isinstance(value, str)):
            raise TypeError("field is a text, and value is a text or null")
        self._device.planted_words[field] = value
        return {}

    def _move_neighbour(self, request: Request) -> Request:
        self._device.neighbours.move(str(ipaddress.ip_address(request["address"])), request["interface"])
        return {}

    def _write_file(self, request: Request) -> Request:
        self._device.files.write(request["name"], Path(request["path"]).read_bytes())
        return {}

    def _skip_time(self, request: Request) -> Request:
        self._device.clock.skip(float(request["seconds"]))
        self._device.schedule.clock_moved()
        return {}

    def _shift_clock(self, request: Request) -> Request:
        self._device.clock.shift += timedelta(seconds=float(request["seconds"]))
        self._device.schedule.clock_moved()
        return {}

    def _set_free_space(self, request: Request) -> Request:
        self._device.flash += int(request["bytes"]) - self._device.free_space()
        return {}

    def _add_learned_hosts(self, request: Request) -> Request:
        port = self._device.hardware.by_name[request["interface"]].name
        numbers = (number.to_bytes(5, "big") for number in range(int(request["count"])))
        self._device.learned = [(":".join(f"{byte:02X}" for byte in (0x06, *octets)), port) for octets in numbers]
        return {}

    def _reset_unit(self, _request: Request) -> Request:
        self._faults.clear()
        cut = self._server.disconnect()
        self._device.reset()
        self._journal.forget()
        return {"sessions": cut}

    def _set_settle_time(self, request: Request) -> Request:
        self._device.links.settle = float(request["seconds"])
        return {}

    def _unroll_delay(self, request: Request) -> Request:
        self._device.unroll_delay = float(request["seconds"])
        return {}
