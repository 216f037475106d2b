"""The target state of a transaction, and how it is recognized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from core.routeros.change_plan import ChangePlan
from core.routeros.menus import ACTIVE, ARP, BRIDGE_HOST, DEVICE_MODE, SAFE_MODE, SCHEDULER, SCRIPT, Menu
from core.routeros.reading import Ask, SwitchReading, read_switch
from switch.desired import menus_of, optional_of
from switch.plan import plan

if TYPE_CHECKING:
    from core.model import Rack, Switch

OURS = (SCHEDULER, SCRIPT, SAFE_MODE, DEVICE_MODE, ACTIVE, ARP, BRIDGE_HOST)
"""Menus that are not part of the state of a run: they contain our own rollback timer, and the active connections."""


class TargetState(Protocol):
    """A state of a switch. `menus` are those that it is about; `words` what it is, after "the switch is as"."""

    @property
    def words(self) -> str: ...

    @property
    def switch(self) -> Switch: ...

    @property
    def menus(self) -> tuple[Menu, ...]: ...

    def read(self, ask: Ask) -> SwitchReading:
        """Read the switch. Raises SwitchError or UnreadableError."""
        ...

    def plan(self, reading: SwitchReading) -> ChangePlan:
        """Return the missing changes. Raises RefusedError or UnreadableError."""
        ...


@dataclass(frozen=True)
class DeclaredTarget:
    """The state that rack.yaml declares."""

    rack: Rack
    switch: Switch
    words: ClassVar[str] = "declared"

    @property
    def menus(self) -> tuple[Menu, ...]:
        theirs = (SCHEDULER, SCRIPT) if "scripts" in self.switch.purge else ()
        return tuple(menu for menu in menus_of(self.rack, self.switch) if menu in theirs or menu not in OURS)

    def read(self, ask: Ask) -> SwitchReading:
        return read_switch(ask, menus_of(self.rack, self.switch), optional_of(self.rack, self.switch))

    def plan(self, reading: SwitchReading) -> ChangePlan:
        return plan(self.rack, self.switch, reading)
