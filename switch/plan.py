"""The changes of a run on a switch, their order, and what they disturb. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.routeros.change_plan import AffectedLink, ChangeBatch, ChangePlan, UnmanagedRow
from core.routeros.diff import RowChange, diff, surplus
from core.routeros.errors import RefusedError
from core.routeros.menus import BRIDGE_PORT, ETHERNET, RESOURCE
from core.routeros.reading import SwitchReading
from core.routeros.rollback_timer import armed_timers, is_timer
from switch.advisories import compromised, exposure, release_faults, release_notes
from switch.cages import declared_words, wanted_lanes, with_effect
from switch.desired import ChangeGroup, DeviceContext, MenuDesired, parts
from switch.health import configured_but_broken
from switch.lockout_risks import lockout_risks
from switch.port_changes import batches, cabled, nodes
from switch.preconditions import blockers, change_blockers

if TYPE_CHECKING:
    from core.model import Rack, Switch


def plan(rack: Rack, switch: Switch, reading: SwitchReading) -> ChangePlan:
    """Compare a switch with its declaration. Raises RefusedError if it is not the switch that is meant or may
    not be changed this way, UnreadableError if what was read cannot be compared."""
    reasons = (*blockers(switch, reading), *compromised(switch, reading))
    if reasons:
        raise RefusedError(reasons)
    links = cabled(rack, switch, reading)
    wanted = parts(rack, switch, DeviceContext.of(reading))
    all_ = (*_lane_batches(switch, reading, links), *(_part_batch(part, reading, links) for part in wanted))
    todo = tuple(batch for batch in all_ if batch.changes)
    version = reading.only(RESOURCE)["version"]
    found = ChangePlan(
        todo,
        tuple(_list_unmanaged_rows(wanted, reading)),
        faults=configured_but_broken(switch, reading),
        notices=release_notes(switch, version),
        armed=armed_timers(reading),
        upgrades=(*release_faults(switch, version), *exposure(switch, reading)),
    )
    reasons = (*change_blockers(found.changes, reading), *lockout_risks(switch, reading, found.changes))
    if reasons:
        raise RefusedError(reasons)
    return found


def _lane_batches(switch: Switch, reading: SwitchReading, links: tuple[AffectedLink, ...]) -> tuple[ChangeBatch, ...]:
    rows = reading.rows(ETHERNET)
    lanes = {cage: diff(ETHERNET, wanted_lanes(switch, cage), rows) for cage in switch.cages}
    lanes = with_effect(switch, reading, lanes)
    return batches(switch.hardware, lanes, reading, links, lambda cage: declared_words(switch, cage))


def _part_batch(part: ChangeGroup, reading: SwitchReading, links: tuple[AffectedLink, ...]) -> ChangeBatch:
    changes = tuple(change for share in part.shares for change in _share_changes(share, reading))
    effect = part.effect(changes) if changes else ""
    names = {change.row for change in changes if change.menu is BRIDGE_PORT}
    if names:
        effect += f" ({nodes(link for link in links if link.name in names)})"
    return ChangeBatch(part.title, effect, changes)


def _share_changes(share: MenuDesired, reading: SwitchReading) -> Iterator[RowChange]:
    if share.menu.path in reading.absent:
        return
    rows = reading.rows(share.menu)
    if share.purge:
        kept = (*(want.key for want in share.rows), *share.spared)
        # A rollback timer is not part of the declaration: it disarms itself, or the run that armed it does.
        yield from (change for change in surplus(share.menu, kept, rows) if not is_timer(change.row))
    yield from diff(share.menu, share.rows, rows)


def _list_unmanaged_rows(wanted: tuple[ChangeGroup, ...], reading: SwitchReading) -> Iterator[UnmanagedRow]:
    for share in (share for part in wanted for share in part.shares):
        if share.listed and not share.purge:
            kept = (*(want.key for want in share.rows), *share.spared)
            for change in surplus(share.menu, kept, reading.rows(share.menu)):
                yield UnmanagedRow(share.menu.path, change.row)
