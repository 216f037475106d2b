"""The links of the whole switch over time: which legs are up, what that does to wires and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lab.routeros_emulator.cabling import DEAF, EmulatedCabling, Socket
from lab.routeros_emulator.lanes import Lane, LaneGroup, effective, legs, obstacle
from lab.routeros_emulator.link_modes import Mode
from lab.routeros_emulator.link_wiring import LinkWiring, WiringError
from lab.routeros_emulator.node_state_file import write_link
from lab.routeros_emulator.ports import EmulatedModel, EmulatedPort
from lab.routeros_emulator.vlans import Membership

LINK_OK, NO_LINK, INITIALIZING = "link-ok", "no-link", "initializing"
#: In place of an MTU: whether the tap is in the fabric is not known, as moving it failed.
_UNSURE = 0
_ETHTOOL_FEC = {"fec91": "RS", "fec74": "BaseR", "off": "Off"}


@dataclass(frozen=True)
class LinkState:
    """State of one sub-interface. ``why`` is the reason why a leg has no link."""

    status: str = NO_LINK
    leg: LaneGroup | None = None
    mode: Mode | None = None
    why: str | None = None

    @property
    def running(self) -> bool:
        """Whether the interface has a link."""
        return self.status == LINK_OK


class LinkTimer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class LinkEnvironment:
    """Functions of the switch that links need.

    ``lanes``   the configured lanes of a cage; ``fabric`` the l2mtu of an interface (default name) that
    forwards frames, None when it does not; ``later`` calls back after seconds; ``tell`` takes (topic, text)
    for the log; ``trained`` is called for cages whose links came up; ``vlans`` returns the VLANs of an interface
    (default name), None where nothing filters; ``stamp`` is the time now, as RouterOS prints it.
    """

    lanes: Callable[[str], Sequence[Lane]]
    fabric: Callable[[str], int | None]
    later: Callable[[float, Callable[[], None]], LinkTimer]
    tell: Callable[[str, str], None]
    trained: Callable[[str], None] = lambda _cage: None
    vlans: Callable[[str], Membership | None] = lambda _: None
    stamp: Callable[[], str] = lambda: ""


class Links:
    """Knows the status of every sub-interface; acts on wires and node state files when one changes."""

    def __init__(
        self,
        hardware: EmulatedModel,
        plant: EmulatedCabling,
        wires: LinkWiring,
        settle: float,
        around: LinkEnvironment,
    ) -> None:
        self._hardware = hardware
        self.plant = plant
        self.settle = settle
        self._wires = wires
        self._around = around
        self._timers: dict[str, LinkTimer] = {}
        self._returning: dict[tuple[str, int], LinkTimer] = {}
        self._status: dict[str, LinkState] = {port.name: LinkState() for port in hardware.ports}
        self._attached: dict[str, int] = {}
        self._vlans: dict[str, Membership | None] = {}
        self.downs: dict[str, int] = {port.name: 0 for port in hardware.ports}
        #: When each interface last lost its link (default name), since the start.
        self.went_down: dict[str, str] = {}

    def status(self, name: str) -> LinkState:
        """The status of a sub-interface by its default name."""
        return self._status[name]

    @property
    def attached(self) -> dict[str, int]:
        """The taps in the fabric, with their MTU."""
        return {tap: mtu for tap, mtu in self._attached.items() if mtu != _UNSURE}

    def boot(self) -> None:
        """Start as after power-on: no tap in the fabric, every cage about to settle."""
        taps = [tap for socket in self.plant.sockets for tap in socket.taps]
        self._try_move(partial(self._wires.detach, taps))
        for timer in self._returning.values():
            timer.cancel()
        self._returning.clear()
        for socket in self.plant.sockets:
            socket.powered = self._wires.powered(socket.taps)
            self._tell_node(socket)
        self.restart(self._hardware.by_cage)

    def look(self) -> None:
        """See which nodes lost their power: their legs go down at once. Those that have it again follow after the
        settle time. Other legs of the cage stay as they are.
        """
        for socket in self.plant.sockets:
            place = (socket.cage, socket.lane)
            if self._wires.powered(socket.taps):
                if not socket.powered and place not in self._returning:
                    self._returning[place] = self._around.later(self.settle, partial(self._power_again, socket))
                continue
            if timer := self._returning.pop(place, None):
                timer.cancel()
            if socket.powered:
                self._set_power(socket, on=False)

    def _power_again(self, socket: Socket) -> None:
        self._returning.pop((socket.cage, socket.lane), None)
        if self._wires.powered(socket.taps):
            self._set_power(socket, on=True)

    def _set_power(self, socket: Socket, *, on: bool) -> None:
        socket.powered = on
        self._update_cage(socket.cage)
        self.reconcile()

    def rewire(self) -> None:
        """Attach everything again, for taps that were created again since."""
        self._attached.clear()
        self.reconcile()

    def restart(self, cages: Iterable[str]) -> None:
        """Take cages down; each comes up again after the settle time, counted from the last restart."""
        for cage in cages:
            if timer := self._timers.pop(cage, None):
                timer.cancel()
            self._timers[cage] = self._around.later(self.settle, partial(self._end_settling, cage))
            self._update_cage(cage)
        self.reconcile()

    def stop(self) -> None:
        """Forget all timers."""
        for timer in (*self._timers.values(), *self._returning.values()):
            timer.cancel()
        self._timers.clear()
        self._returning.clear()

    def _end_settling(self, cage: str) -> None:
        self._timers.pop(cage, None)
        self._around.trained(cage)
        self._update_cage(cage)
        self.reconcile()

    def _update_cage(self, cage: str) -> None:
        settling = cage in self._timers
        ports = self._hardware.by_cage[cage]
        found = self._evaluate_ether(cage) if ports[0].kind == "ether" else self._evaluate_cage(cage)
        for port in ports:
            new = found.get(port.lane, LinkState())
            if settling and new.leg is not None:
                new = LinkState(INITIALIZING, new.leg, new.mode, new.why)
            old, self._status[port.name] = self._status[port.name], new
            if old.running != new.running:
                self._link_changed(port, new)
            elif new.leg and new.leg.negotiates and new.status == NO_LINK and self.plant.medium(cage):
                self._around.tell(
                    "interface,warning", f"{port.name} module auto-initialization failed, try forced-mode"
                )
        for socket in self.plant.at(cage):
            self._tell_node(socket)

    def _evaluate_cage(self, cage: str) -> dict[int, LinkState]:
        kind = self._hardware.cages[cage]
        tails = [socket.tail() for socket in self.plant.at(cage)]
        found: dict[int, LinkState] = {}
        for leg in legs(kind, self._around.lanes(cage)):
            why = obstacle(kind, leg, tails)
            tail = next((tail for tail in tails if tail.lane == leg.first), None)
            mode = effective(kind, leg, tail) if tail else leg.mode
            found[leg.first] = LinkState(LINK_OK if why is None else NO_LINK, leg, mode, why)
        return found

    def _evaluate_ether(self, cage: str) -> dict[int, LinkState]:
        """ether1 is where the management network is plugged in; ether2 has no cable."""
        lane = self._around.lanes(cage)[0]
        if not lane.enabled:
            return {}
        up = cage == "ether1"
        leg = LaneGroup(1, (1,), None, negotiates=lane.negotiates)
        return {1: LinkState(LINK_OK if up else NO_LINK, leg, None, None if up else "nothing is plugged in")}

    def _link_changed(self, port: EmulatedPort, new: LinkState) -> None:
        if new.running:
            self._around.tell("interface,info", f"{port.name} link up")
        else:
            self.downs[port.name] += 1
            self.went_down[port.name] = self._around.stamp()
            self._around.tell("interface,info", f"{port.name} link down")

    def reconcile(self) -> None:
        """Update the fabric's members from links and bridge; called after every change of either."""
        wanted: dict[str, int] = {}
        for socket in self.plant.sockets:
            name = self.interface(socket)
            mtu = self._around.fabric(name) if self._status[name].running and socket.state != DEAF else None
            if mtu is not None:
                wanted |= dict.fromkeys(socket.taps, mtu)
            if self._vlans.get(name) != self._around.vlans(name):
                self._tell_node(socket)
        gone = [tap for tap in self._attached if tap not in wanted]
        if gone:
            self._try_move(partial(self._wires.detach, gone))
        for mtu in sorted(set(wanted.values())):
            new = [tap for tap, size in wanted.items() if size == mtu and self._attached.get(tap) != mtu]
            if new and not self._try_move(partial(self._wires.attach, new, mtu)):
                # Some may have moved. Tried again with the next change: a missing tap may be there by then.
                wanted |= dict.fromkeys(new, _UNSURE)
        self._attached = wanted

    def _try_move(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except (WiringError, OSError) as error:
            self._around.tell("system,error", f"wires: {error}")
            return False
        return True

    def _tell_node(self, socket: Socket) -> None:
        if socket.state_file is None:
            return
        name = self.interface(socket)
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

    def interface(self, socket: Socket) -> str:
        """The default name of the sub-interface that a tail's first lane belongs to."""
        return self._hardware.by_cage[socket.cage][socket.lane - 1].name
