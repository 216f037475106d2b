"""The test knobs' own door: a unix-domain socket that takes one JSON request a line and answers one a line.

``{"op": "stats"}`` → ``reads``, ``writes``, ``refused`` per menu
``{"op": "state"}`` → ``tables``, ``links``, ``attached``, ``safe_mode``, ``cables``
``{"op": "fault", "kind": …, "match": …, …}`` adds a fault (see faults.py); ``{"op": "heal"}`` ends all
``{"op": "cable", "do": "pull"|"plug"|"deafen", "cage": …, "lane": n}``; ``"swap"`` needs ``"to": {cage,
lane}``
``{"op": "settle", "seconds": s}``; ``{"op": "unroll_delay", "seconds": s}``
``{"op": "counters", "interface": …, "add": {counter: n}}`` lets counters grow; ``{"op": "stale", "interface": …}``
leaves the frames of a bridge port to the CPU although its flags say offloaded; ``{"op": "retrain"}`` does so to every
link that comes up from then on; ``{"op": "quiet"}`` stops all traffic but what ``counters`` adds
``{"op": "learn", "address": …, "interface": …}`` says behind which port (default name) a client is, ether1 otherwise
``{"op": "pass", "seconds": s}`` lets time pass for clock, uptime and schedules
``{"op": "reset"}`` puts everything back to how it was when the process started and cuts all connections
``{"op": "rewire"}`` attaches taps anew; ``{"op": "disconnect"}`` cuts all API connections
Every answer has ``ok``; a refused request says why in ``error``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .device import Device
from .faults import Faults
from .journal import Journal
from .plant import DEAF, PLUGGED, PULLED
from .reading import listing
from .server import Server

Request = dict[str, Any]
_CABLE_STATES = {"pull": PULLED, "plug": PLUGGED, "deafen": DEAF}


class Control:
    """Answers control requests."""

    def __init__(self, device: Device, faults: Faults, journal: Journal, server: Server) -> None:
        self._device, self._faults, self._journal, self._server = device, faults, journal, server
        self._listener: asyncio.Server | None = None
        self._operations: dict[str, Callable[[Request], Request]] = {
            "stats": lambda _request: dict(self._journal.stats()),
            "state": self._state,
            "fault": self._fault,
            "heal": self._heal,
            "cable": self._cable,
            "settle": self._settle,
            "unroll_delay": self._unroll_delay,
            "counters": self._counters,
            "stale": self._stale,
            "retrain": self._retrain,
            "quiet": self._quiet,
            "learn": self._learn,
            "pass": self._pass,
            "reset": self._reset,
            "rewire": self._rewire,
            "disconnect": lambda _request: {"sessions": self._server.disconnect()},
        }

    async def start(self, path: Path) -> None:
        """Listen on a socket file that only this user may open; one left by an earlier run is replaced."""
        path.unlink(missing_ok=True)
        self._listener = await asyncio.start_unix_server(self._serve, path)
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(self.answer(line)).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _state(self, _request: Request) -> Request:
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
                {"cage": s.cage, "lane": s.lane, "node": s.node, "port": s.port, "state": s.state}
                for s in device.links.plant.sockets
            ],
        }

    def _fault(self, request: Request) -> Request:
        self._faults.add(request)
        return {}

    def _heal(self, _request: Request) -> Request:
        self._faults.clear()
        return {}

    def _rewire(self, _request: Request) -> Request:
        self._device.links.rewire()
        return {}

    def _cable(self, request: Request) -> Request:
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

    def _counters(self, request: Request) -> Request:
        self._device.chip.bump(request["interface"], request["add"])
        return {}

    def _stale(self, request: Request) -> Request:
        self._device.chip.lose_offload(request["interface"])
        return {}

    def _retrain(self, request: Request) -> Request:
        self._device.chip.retrains = bool(request.get("stale", True))
        return {}

    def _quiet(self, _request: Request) -> Request:
        self._device.chip.quiet = True
        return {}

    def _learn(self, request: Request) -> Request:
        self._device.neighbours.move(str(ipaddress.ip_address(request["address"])), request["interface"])
        return {}

    def _pass(self, request: Request) -> Request:
        self._device.clock.skip(float(request["seconds"]))
        self._device.schedule.arm_all()
        return {}

    def _reset(self, _request: Request) -> Request:
        self._faults.clear()
        cut = self._server.disconnect()
        self._device.reset()
        self._journal.forget()
        return {"sessions": cut}

    def _settle(self, request: Request) -> Request:
        self._device.links.settle = float(request["seconds"])
        return {}

    def _unroll_delay(self, request: Request) -> Request:
        self._device.unroll_delay = float(request["seconds"])
        return {}
