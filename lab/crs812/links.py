"""The links of the whole switch over time: which legs are up, what that does to wires and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .lanes import Lane, Leg, effective, legs, obstacle
from .modes import LANES, Mode
from .nodestate import write_link
from .plant import DEAF, Plant, Socket
from .ports import CAGE, PORT, PORTS, Port
from .vlans import Membership
from .wires import WireError, Wires

LINK_OK, NO_LINK, INITIALIZING = "link-ok", "no-link", "initializing"
#: In place of an MTU: whether the tap is in the fabric is not known, as moving it failed.
_UNSURE = 0
_ETHTOOL_FEC = {"fec91": "RS", "fec74": "BaseR", "off": "Off"}


@dataclass(frozen=True)
class Status:
    """What one sub-interface does now. ``why`` says what keeps a leg from a link."""

    status: str = NO_LINK
    leg: Leg | None = None
    mode: Mode | None = None
    why: str | None = None

    @property
    def running(self) -> bool:
        """Whether the interface has a link."""
        return self.status == LINK_OK


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """What links need from the rest of the switch.

    ``lanes``   the configured lanes of a cage; ``fabric`` the l2mtu of an interface (default name) that
    forwards frames, None when it does not; ``later`` calls back after seconds; ``tell`` takes (topic, text)
    for the log; ``trained`` hears of cages whose links came up; ``vlans`` says which VLANs an interface (default
    name) carries, None where nothing filters.
    """

    lanes: Callable[[str], Sequence[Lane]]
    fabric: Callable[[str], int | None]
    later: Callable[[float, Callable[[], None]], Timer]
    tell: Callable[[str, str], None]
    trained: Callable[[str], None] = lambda _cage: None
    vlans: Callable[[str], Membership | None] = lambda _: None


class Links:
    """Knows the status of every sub-interface; acts on wires and node state files when one changes."""

    def __init__(self, plant: Plant, wires: Wires, settle: float, around: Surroundings) -> None:
        self.plant = plant
        self.settle = settle
        self._wires = wires
        self._around = around
        self._timers: dict[str, Timer] = {}
        self._status: dict[str, Status] = {port.name: Status() for port in PORTS}
        self._attached: dict[str, int] = {}
        self._vlans: dict[str, Membership | None] = {}
        self.downs: dict[str, int] = {port.name: 0 for port in PORTS}

    def status(self, name: str) -> Status:
        """The status of a sub-interface by its default name."""
        return self._status[name]

    @property
    def attached(self) -> dict[str, int]:
        """The taps in the fabric, with their MTU."""
        return {tap: mtu for tap, mtu in self._attached.items() if mtu != _UNSURE}

    def boot(self) -> None:
        """Start as after power-on: no tap in the fabric, every cage about to settle."""
        taps = [tap for socket in self.plant.sockets for tap in socket.taps]
        self._move(partial(self._wires.detach, taps))
        for socket in self.plant.sockets:
            self._tell_node(socket)
        self.restart(CAGE)

    def rewire(self) -> None:
        """Attach everything anew, for taps that were made again since."""
        self._attached.clear()
        self.reconcile()

    def restart(self, cages: Iterable[str]) -> None:
        """Take cages down; each comes up again after the settle time, counted from the last restart."""
        for cage in cages:
            if timer := self._timers.pop(cage, None):
                timer.cancel()
            self._timers[cage] = self._around.later(self.settle, partial(self._settled, cage))
            self._update(cage)
        self.reconcile()

    def stop(self) -> None:
        """Forget all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _settled(self, cage: str) -> None:
        self._timers.pop(cage, None)
        self._around.trained(cage)
        self._update(cage)
        self.reconcile()

    def _update(self, cage: str) -> None:
        settling = cage in self._timers
        found = self._ether(cage) if CAGE[cage][0].kind == "ether" else self._evaluate(cage)
        for port in CAGE[cage]:
            new = found.get(port.lane, Status())
            if settling and new.leg is not None:
                new = Status(INITIALIZING, new.leg, new.mode, new.why)
            old, self._status[port.name] = self._status[port.name], new
            if old.running != new.running:
                self._link_changed(port, new)
            elif new.leg and new.leg.negotiates and new.status == NO_LINK and self.plant.medium(cage):
                self._around.tell(
                    "interface,warning", f"{port.name} module auto-initialization failed, try forced-mode"
                )
        for socket in self.plant.at(cage):
            self._tell_node(socket)

    def _evaluate(self, cage: str) -> dict[int, Status]:
        kind = CAGE[cage][0].kind
        tails = [socket.tail() for socket in self.plant.at(cage)]
        found: dict[int, Status] = {}
        for leg in legs(kind, self._around.lanes(cage)):
            why = obstacle(kind, leg, tails)
            tail = next((tail for tail in tails if tail.lane == leg.first), None)
            mode = effective(kind, leg, tail) if tail else leg.mode
            found[leg.first] = Status(LINK_OK if why is None else NO_LINK, leg, mode, why)
        return found

    def _ether(self, cage: str) -> dict[int, Status]:
        """ether1 is where the management network is plugged in; ether2 has no cable."""
        lane = self._around.lanes(cage)[0]
        if not lane.enabled:
            return {}
        up = cage == "ether1"
        leg = Leg(1, (1,), None, negotiates=lane.negotiates)
        return {1: Status(LINK_OK if up else NO_LINK, leg, None, None if up else "nothing is plugged in")}

    def _link_changed(self, port: Port, new: Status) -> None:
        if new.running:
            self._around.tell("interface,info", f"{port.name} link up")
        else:
            self.downs[port.name] += 1
            self._around.tell("interface,info", f"{port.name} link down")

    def reconcile(self) -> None:
        """Make the fabric's members what links and bridge say; called after every change of either."""
        wanted: dict[str, int] = {}
        for socket in self.plant.sockets:
            name = interface(socket)
            mtu = self._around.fabric(name) if self._status[name].running and socket.state != DEAF else None
            if mtu is not None:
                wanted |= dict.fromkeys(socket.taps, mtu)
            if self._vlans.get(name) != self._around.vlans(name):
                self._tell_node(socket)
        gone = [tap for tap in self._attached if tap not in wanted]
        if gone:
            self._move(partial(self._wires.detach, gone))
        for mtu in sorted(set(wanted.values())):
            new = [tap for tap, size in wanted.items() if size == mtu and self._attached.get(tap) != mtu]
            if new and not self._move(partial(self._wires.attach, new, mtu)):
                # Some may have moved. Tried again with the next change: a missing tap may be there by then.
                wanted |= dict.fromkeys(new, _UNSURE)
        self._attached = wanted

    def _move(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except (WireError, OSError) as error:
            self._around.tell("system,error", f"wires: {error}")
            return False
        return True

    def _tell_node(self, socket: Socket) -> None:
        if socket.state_file is None:
            return
        name = interface(socket)
        status, vlans = self._status[name], self._around.vlans(name)
        self._vlans[name] = vlans
        up = status.running and socket.state != DEAF and status.mode is not None
        fec = status.mode.fec_shown(status.leg.fec) if status.mode and status.leg else "off"
        link: dict[str, object] = {
            "carrier": up,
            "speed": status.mode.mbps if up and status.mode else None,
            "lanes": socket.lanes,
            "fec": _ETHTOOL_FEC[fec] if up else "None",
            "leg": name,
            "vlans": vlans and vlans.as_json(),
        }
        try:
            write_link(socket.state_file, socket.port, link)
        except (OSError, ValueError) as error:
            self._around.tell("system,error", f"node state: {error}")


def interface(socket: Socket) -> str:
    """The default name of the sub-interface that a tail's first lane belongs to."""
    multi = LANES[CAGE[socket.cage][0].kind] > 1
    name = f"{socket.cage}-{socket.lane}" if multi else socket.cage
    return PORT[name].name
