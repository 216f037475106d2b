"""A kept backup as the goal of a transaction: every row of our menus as it was then. Pure.

What is not put back, and told instead: our own user, its group and the port, certificate and switch of the service
that we come in by; users and SNMP communities that are gone, whose passwords nobody knows but rack.yaml; rows that
a menu has twice, of which nobody can say which is which. Rows are put back with the fields that this project
knows; others of a row that was removed come back with RouterOS's own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from .backup import KEPT
from .batch import Batch, Link, Plan
from .cages import describe, lanes_of
from .comeback import Comeback, comeback
from .deadman import left_armed
from .diff import Change
from .errors import RefusedError
from .gate import hindrances, wrong_unit
from .lanes import batches, cabled, units
from .menus import (
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
from .paths import cuts
from .reading import Ask, Reading, read
from .renaming import Renaming
from .stages import STAGES, Stage

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch


@dataclass(frozen=True)
class Restored:
    """The state that a backup of `switch` holds, `kept`. wait: legs that are cabled must come up."""

    rack: Rack
    switch: Switch
    kept: Reading
    wait: bool = True
    words: ClassVar[str] = "in the backup"

    @property
    def menus(self) -> tuple[Menu, ...]:
        return tuple(menu for menu in KEPT if menu.path in self.kept.tables)

    def read(self, ask: Ask) -> Reading:
        return read(
            ask, (*KEPT, ACTIVE, ARP, BRIDGE_HOST, SCHEDULER, SCRIPT, SAFE_MODE, DEVICE_MODE), (*KEPT, DEVICE_MODE)
        )

    def plan(self, reading: Reading) -> Plan:
        """What differs from the backup. Raises RefusedError if it is of another unit, or may not be put back from
        here, UnreadableError if what was read or kept cannot be compared."""
        reasons = (*wrong_unit(self.switch, reading), *_wrong_backup(reading, self.kept))
        if reasons:
            raise RefusedError(reasons)
        renaming = Renaming.between(reading, self.kept)
        now = renaming.of(reading)
        found = {menu: comeback(self.switch, menu, now, self.kept) for menu in self.menus if menu is not ETHERNET}
        lanes = comeback(self.switch, ETHERNET, reading, self.kept)
        links = self._links(reading) if self.wait else ()
        todo = tuple(batch for batch in self._batches(reading, lanes, found, links) if batch.changes)
        touched = {change.row for change in lanes.changes}
        told = (*self._told(reading, touched), *lanes.told, *(text for each in found.values() for text in each.told))
        plan = Plan(todo, told=told, armed=left_armed(reading))
        reasons = (
            *renaming.faults,
            *_renamed_bridge(found),
            *hindrances(plan.changes, reading),
            *cuts(self.switch, now, plan.changes),
        )
        if reasons:
            raise RefusedError(reasons)
        return plan

    def _batches(
        self, reading: Reading, lanes: Comeback, found: dict[Menu, Comeback], links: tuple[Link, ...]
    ) -> Iterator[Batch]:
        """Whoever filters VLANs that are not there yet locks itself out: off first, on last."""
        filtering = tuple(_filtering(found[BRIDGE].changes)) if BRIDGE in found else ()
        off = tuple(change for change in filtering if ("vlan-filtering", "no") in change.values)
        yield Batch("VLAN filtering off", "all VLANs pass", off)
        grouped = {
            unit: tuple(change for change in lanes.changes if change.row in names)
            for unit, names in units(reading).items()
        }
        grouped = {unit: changes for unit, changes in grouped.items() if changes}
        yield from batches(grouped, reading, links, lambda cage: describe(cage, self.kept.ethernet))
        for stage in STAGES:
            yield _staged(stage, found, links)
        on = tuple(change for change in filtering if change not in off)
        yield Batch("VLAN filtering on", "only declared VLANs pass", on)

    def _links(self, reading: Reading) -> tuple[Link, ...]:
        """The legs that have a link once the backup is back: those that are cabled as it has their cages split."""
        return tuple(link for link in cabled(self.rack, self.switch, reading) if self._as_declared(link.leg.cage))

    def _as_declared(self, cage: str) -> bool:
        declared = self.switch.cages[cage]
        return describe(cage, self.kept.ethernet) == f"{declared.split} {declared.medium}"

    def _told(self, reading: Reading, touched: Set[str]) -> Iterator[str]:
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


def _wrong_backup(reading: Reading, kept: Reading) -> Iterator[str]:
    """A backup says which unit it is of, by what that unit said of itself then."""
    then = (kept.tables.get(ROUTERBOARD.path) or ({},))[0]
    now = reading.only(ROUTERBOARD)
    if not then.get("serial-number") or not then.get("model"):
        yield "the backup does not say which unit it is of"
        return
    for name, what in (("model", "model"), ("serial-number", "serial number")):
        if now.get(name) != then[name]:
            yield f"the backup is of another unit: its {what} is {then[name]}, the device's {now.get(name) or '(none)'}"


def _renamed_bridge(found: dict[Menu, Comeback]) -> Iterator[str]:
    """One that is gone while another came was renamed, and all that stands on it (its address, too) goes with the
    name: made anew under its old name it would be another."""
    changes = found[BRIDGE].changes if BRIDGE in found else ()
    gone, came = [c.row for c in changes if c.adds], [c.row for c in changes if c.removes]
    if gone and came:
        yield (
            f"bridge {gone[0]} of the backup is now called {came[0]}, or was replaced by it: give it its name back by "
            "hand (/interface/bridge/set)"
        )


def _staged(stage: Stage, found: dict[Menu, Comeback], links: tuple[Link, ...]) -> Batch:
    menus = [menu for menu in stage.menus if menu in found]
    written = [c for menu in menus for c in _unfiltered(found[menu].changes) if not c.removes]
    removed = [c for menu in reversed(menus) for c in found[menu].changes if c.removes]
    changes = (*written, *removed)
    return Batch(stage.title, stage.effect(changes, links) if changes else "", changes)


def _filtering(changes: tuple[Change, ...]) -> Iterator[Change]:
    """Of bridges that stay, what is about filtering. One that is added has no port yet and takes it along."""
    for change in changes:
        fields = tuple(field for field in change.fields if field.name == "vlan-filtering")
        if fields and not change.adds:
            yield replace(change, fields=fields)


def _unfiltered(changes: tuple[Change, ...]) -> Iterator[Change]:
    for change in changes:
        if change.menu is not BRIDGE or change.adds or change.removes:
            yield change
            continue
        fields = tuple(field for field in change.fields if field.name != "vlan-filtering")
        if fields:
            yield replace(change, fields=fields)
