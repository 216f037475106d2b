"""A backup as the target of a transaction: every row of our menus as it was then. Pure.

Not restored, but reported: our own user, its group and the port, certificate and enabled state of the service of our
session; missing users and SNMP communities whose passwords are not in rack.yaml; duplicate rows of a menu, which cannot
be distinguished. Rows are restored with the fields that this project knows; other fields of a removed row get
RouterOS's own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from core.routeros.change_plan import AffectedLink, ChangeBatch, ChangePlan
from core.routeros.diff import RowChange
from core.routeros.errors import RefusedError
from core.routeros.menus import (
    ACTIVE,
    ARP,
    BRIDGE,
    BRIDGE_HOST,
    DEVICE_MODE,
    ETHERNET,
    ROUTERBOARD,
    SAFE_MODE,
    SCHEDULER,
    SCRIPT,
    Menu,
)
from core.routeros.reading import Ask, SwitchReading, read_switch
from core.routeros.renaming import Renaming
from core.routeros.rollback_timer import armed_timers
from switch.advisories import compromised
from switch.backup import KEPT
from switch.cages import describe, lanes_of
from switch.lockout_risks import lockout_risks
from switch.port_changes import batches, cabled, units
from switch.preconditions import change_blockers, wrong_unit
from switch.restore_diff import RestoreDiff, restore_diff
from switch.restore_order import STAGES, Stage

if TYPE_CHECKING:
    from core.model import Rack, Switch


@dataclass(frozen=True)
class BackupTarget:
    """The state that a backup of `switch` holds, `kept`. wait: legs that are cabled must come up."""

    rack: Rack
    switch: Switch
    kept: SwitchReading
    wait: bool = True
    words: ClassVar[str] = "in the backup"

    @property
    def menus(self) -> tuple[Menu, ...]:
        return tuple(menu for menu in KEPT if menu.path in self.kept.tables)

    def read(self, ask: Ask) -> SwitchReading:
        return read_switch(ask, (*KEPT, ACTIVE, ARP, BRIDGE_HOST, SCHEDULER, SCRIPT, SAFE_MODE, DEVICE_MODE), KEPT)

    def plan(self, reading: SwitchReading) -> ChangePlan:
        """Return the differences from the backup. Raises RefusedError if it is of another unit, or may not be restored
        from here, UnreadableError if the reading or the backup cannot be compared.
        """
        reasons = (
            *wrong_unit(self.switch, reading),
            *compromised(self.switch, reading),
            *_wrong_backup(reading, self.kept),
        )
        if reasons:
            raise RefusedError(reasons)
        renaming = Renaming.between(reading, self.kept)
        now = renaming.of(reading)
        found = {menu: restore_diff(self.switch, menu, now, self.kept) for menu in self.menus if menu is not ETHERNET}
        lanes = restore_diff(self.switch, ETHERNET, reading, self.kept)
        links = self._affected_links(reading) if self.wait else ()
        todo = tuple(batch for batch in self._ordered_batches(reading, lanes, found, links) if batch.changes)
        touched = {change.row for change in lanes.changes}
        notices = (
            *self._menu_notices(reading, touched),
            *lanes.notices,
            *(text for each in found.values() for text in each.notices),
        )
        plan = ChangePlan(todo, notices=notices, armed=armed_timers(reading))
        reasons = (
            *renaming.faults,
            *_renamed_bridge(found),
            *change_blockers(plan.changes, reading),
            *lockout_risks(self.switch, now, plan.changes),
        )
        if reasons:
            raise RefusedError(reasons)
        return plan

    def _ordered_batches(
        self,
        reading: SwitchReading,
        lanes: RestoreDiff,
        found: dict[Menu, RestoreDiff],
        links: tuple[AffectedLink, ...],
    ) -> Iterator[ChangeBatch]:
        """Order the batches: filtering before its VLANs exist would lock us out, so it is switched off first and on
        last.
        """
        filtering = tuple(_list_filtering_changes(found[BRIDGE].changes)) if BRIDGE in found else ()
        off = tuple(change for change in filtering if ("vlan-filtering", "no") in change.values)
        yield ChangeBatch("VLAN filtering off", "all VLANs pass", off)
        grouped = {
            unit: tuple(change for change in lanes.changes if change.row in names)
            for unit, names in units(self.switch.hardware, reading).items()
        }
        grouped = {unit: changes for unit, changes in grouped.items() if changes}
        hardware = self.switch.hardware
        yield from batches(hardware, grouped, reading, links, lambda cage: describe(cage, self.kept.ethernet))
        for stage in STAGES:
            yield _stage_batch(stage, found, links)
        on = tuple(change for change in filtering if change not in off)
        yield ChangeBatch("VLAN filtering on", "only declared VLANs pass", on)

    def _affected_links(self, reading: SwitchReading) -> tuple[AffectedLink, ...]:
        """The legs that have a link once the backup is back: those that are cabled as it has their cages split."""
        return tuple(link for link in cabled(self.rack, self.switch, reading) if self._as_declared(link.leg.cage))

    def _as_declared(self, cage: str) -> bool:
        declared = self.switch.cages[cage]
        return describe(cage, self.kept.ethernet) == f"{declared.split} {declared.medium}"

    def _menu_notices(self, reading: SwitchReading, touched: Set[str]) -> Iterator[str]:
        if reading.release != self.kept.release:
            now, then = (".".join(map(str, release[:3])) for release in (reading.release, self.kept.release))
            yield f"the switch runs RouterOS {now}; the backup is of {then}"
        for cage in self.switch.cages:
            if not self._as_declared(cage) and touched & set(lanes_of(cage)):
                spec = self.switch.cages[cage]
                yield (
                    f"cage {cage} is {describe(cage, self.kept.ethernet)} in the backup and {spec.split} {spec.medium} "
                    "in rack.yaml: its links are not waited for"
                )
        for menu in self.menus:
            if menu.path in reading.absent:
                yield f"the switch has no {menu.path} any more: not put back"


def _wrong_backup(reading: SwitchReading, kept: SwitchReading) -> Iterator[str]:
    """Yield a message if the backup is of another unit, by that unit's own data."""
    then = (kept.tables.get(ROUTERBOARD.path) or ({},))[0]
    now = reading.only(ROUTERBOARD)
    if not then.get("serial-number") or not then.get("model"):
        yield "the backup does not name its unit"
        return
    for name, what in (("model", "model"), ("serial-number", "serial number")):
        if now.get(name) != then[name]:
            yield f"the backup is of another unit: its {what} is {then[name]}, the device's {now.get(name) or '(none)'}"


def _renamed_bridge(found: dict[Menu, RestoreDiff]) -> Iterator[str]:
    """Detect a renamed bridge: one is gone while another appeared. Everything that refers to it (its address, too)
    follows the name: a new bridge under its old name would be a different one.
    """
    changes = found[BRIDGE].changes if BRIDGE in found else ()
    gone, came = [c.row for c in changes if c.adds], [c.row for c in changes if c.removes]
    if gone and came:
        yield (
            f"bridge {gone[0]} of the backup is now called {came[0]}, or was replaced by it: give it its name back by "
            "hand (/interface/bridge/set)"
        )


def _stage_batch(stage: Stage, found: dict[Menu, RestoreDiff], links: tuple[AffectedLink, ...]) -> ChangeBatch:
    menus = [menu for menu in stage.menus if menu in found]
    written = [c for menu in menus for c in _remove_filtering_changes(found[menu].changes) if not c.removes]
    removed = [c for menu in reversed(menus) for c in found[menu].changes if c.removes]
    changes = (*written, *removed)
    return ChangeBatch(stage.title, stage.effect(changes, links) if changes else "", changes)


def _list_filtering_changes(changes: tuple[RowChange, ...]) -> Iterator[RowChange]:
    """Yield the filtering changes of existing bridges. An added bridge has no port yet and gets its
    filtering at once.
    """
    for change in changes:
        fields = tuple(field for field in change.fields if field.name == "vlan-filtering")
        if fields and not change.adds:
            yield replace(change, fields=fields)


def _remove_filtering_changes(changes: tuple[RowChange, ...]) -> Iterator[RowChange]:
    for change in changes:
        if change.menu is not BRIDGE or change.adds or change.removes:
            yield change
            continue
        fields = tuple(field for field in change.fields if field.name != "vlan-filtering")
        if fields:
            yield replace(change, fields=fields)
