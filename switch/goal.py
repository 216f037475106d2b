"""What a transaction brings a switch to, and how it tells whether it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from .batch import Plan
from .menus import ACTIVE, ARP, BRIDGE_HOST, DEVICE_MODE, SAFE_MODE, SCHEDULER, SCRIPT, Menu
from .plan import plan
from .reading import Ask, Reading, read
from .wanted import menus_of, optional_of

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

OURS = (SCHEDULER, SCRIPT, SAFE_MODE, DEVICE_MODE, ACTIVE, ARP, BRIDGE_HOST)
"""Menus that say nothing of the state a run is about: our own dead man stands there, and who is connected."""


class Goal(Protocol):
    """A state of a switch. `menus` are those that it is about; `words` what it is, after "the switch is as"."""

    @property
    def words(self) -> str: ...

    @property
    def menus(self) -> tuple[Menu, ...]: ...

    def read(self, ask: Ask) -> Reading:
        """Read the switch. Raises SwitchError or UnreadableError."""
        ...

    def plan(self, reading: Reading) -> Plan:
        """What is missing. Raises RefusedError or UnreadableError."""
        ...


@dataclass(frozen=True)
class Declared:
    """The state that rack.yaml declares."""

    rack: Rack
    switch: Switch
    words: ClassVar[str] = "declared"

    @property
    def menus(self) -> tuple[Menu, ...]:
        theirs = (SCHEDULER, SCRIPT) if "scripts" in self.switch.purge else ()
        return tuple(menu for menu in menus_of(self.rack, self.switch) if menu in theirs or menu not in OURS)

    def read(self, ask: Ask) -> Reading:
        return read(ask, menus_of(self.rack, self.switch), optional_of(self.rack, self.switch))

    def plan(self, reading: Reading) -> Plan:
        return plan(self.rack, self.switch, reading)
