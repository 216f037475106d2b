"""The cables as they are plugged now: those of the configuration, until a test pulls or swaps one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.routeros_emulator.config import EmulatedCable
from lab.routeros_emulator.lanes import LaneTail

PLUGGED, PULLED, DEAF = "plugged", "pulled", "deaf"


@dataclass
class Socket:
    """A tail's place in a cage, and the node behind it.

    ``state``: ``plugged``; ``pulled`` (nothing there); ``deaf`` (the switch sees a link, the node does not,
    as reported from forced modes where the adapter trained on other lanes). ``fec``: what the node runs; None follows
    the switch. ``powered``: whether the adapter of the node gives a signal.
    """

    cage: str
    lane: int
    lanes: int
    gbps: int
    medium: str
    node: str
    port: int
    taps: tuple[str, ...]
    macs: tuple[str, ...]
    state_file: Path | None
    fec: str | None = None
    state: str = PLUGGED
    powered: bool = True

    @property
    def dark(self) -> bool:
        """Whether no signal arrives from the tail."""
        return self.state == PULLED or not self.powered

    def tail(self) -> LaneTail:
        """The physical end as the lane rules see it."""
        plugged = self.state != PULLED
        return LaneTail(self.lane, self.lanes, self.gbps, self.medium, plugged, self.fec, powered=self.powered)


class EmulatedCabling:
    """All tails by cage and first lane."""

    def __init__(self, cables: Iterable[EmulatedCable]) -> None:
        self._media: dict[str, str] = {}
        self.sockets: list[Socket] = []
        for cable in cables:
            self._media[cable.cage] = cable.medium
            for tail in cable.tails:
                fields = tail.model_dump()
                self.sockets.append(Socket(cage=cable.cage, medium=cable.medium, **fields))

    def medium(self, cage: str) -> str | None:
        """Return the type of the cable in a cage, or None when it is empty."""
        return self._media.get(cage)

    def at(self, cage: str) -> Iterator[Socket]:
        """The tails in a cage."""
        return (socket for socket in self.sockets if socket.cage == cage)

    def find(self, cage: str, lane: int) -> Socket:
        """The tail that starts at a lane; KeyError when there is none."""
        for socket in self.at(cage):
            if socket.lane == lane:
                return socket
        raise KeyError(f"no tail at {cage} lane {lane}")

    def swap(self, one: Socket, other: Socket) -> None:
        """Exchange the nodes behind two tails, as a wrong patch would."""
        for name in ("node", "port", "taps", "macs", "state_file", "fec", "powered"):
            mine, theirs = getattr(one, name), getattr(other, name)
            setattr(one, name, theirs)
            setattr(other, name, mine)
