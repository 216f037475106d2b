"""What a run would do to a switch, in which order, and whom it would disturb. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .batch import Batch, Link, Plan
from .cages import wanted_lanes
from .deadman import PREFIX, left_armed
from .diff import Change, diff, surplus
from .errors import RefusedError
from .faults import faults
from .gate import hindrances, refusals
from .lanes import batches, cabled, nodes
from .menus import BRIDGE_PORT, ETHERNET
from .paths import cuts
from .reading import Reading
from .wanted import Part, Seen, Share, parts

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch


def plan(rack: Rack, switch: Switch, reading: Reading) -> Plan:
    """Compare a switch with its declaration. Raises RefusedError if it is not the switch that is meant or may
    not be changed this way, UnreadableError if what was read cannot be compared."""
    reasons = refusals(switch, reading)
    if reasons:
        raise RefusedError(reasons)
    links = cabled(rack, switch, reading)
    wanted = parts(rack, switch, Seen.of(reading))
    all_ = (*_lanes(switch, reading, links), *(_batch(part, reading, links) for part in wanted))
    todo = tuple(batch for batch in all_ if batch.changes)
    found = Plan(todo, tuple(_unmanaged(wanted, reading)), faults(switch, reading), armed=left_armed(reading))
    reasons = (*hindrances(found.changes, reading), *cuts(switch, reading, found.changes))
    if reasons:
        raise RefusedError(reasons)
    return found


def _lanes(switch: Switch, reading: Reading, links: tuple[Link, ...]) -> tuple[Batch, ...]:
    rows = reading.rows(ETHERNET)
    lanes = {cage: diff(ETHERNET, wanted_lanes(switch, cage), rows) for cage in switch.cages}
    return batches(lanes, reading, links, lambda cage: f"{switch.cages[cage].split} {switch.cages[cage].medium}")


def _batch(part: Part, reading: Reading, links: tuple[Link, ...]) -> Batch:
    changes = tuple(change for share in part.shares for change in _changes(share, reading))
    effect = part.effect(changes) if changes else ""
    names = {change.row for change in changes if change.menu is BRIDGE_PORT}
    if names:
        effect += f" ({nodes(link for link in links if link.name in names)})"
    return Batch(part.title, effect, changes)


def _changes(share: Share, reading: Reading) -> Iterator[Change]:
    if share.menu.path in reading.absent:
        return
    rows = reading.rows(share.menu)
    if share.purge:
        kept = (*(want.key for want in share.rows), *share.spared)
        # A dead man is not the declaration's business: it disarms itself, or the run that armed it does.
        yield from (change for change in surplus(share.menu, kept, rows) if not change.row.startswith(PREFIX))
    yield from diff(share.menu, share.rows, rows)


def _unmanaged(wanted: tuple[Part, ...], reading: Reading) -> Iterator[str]:
    for share in (share for part in wanted for share in part.shares):
        if share.listed and not share.purge:
            kept = (*(want.key for want in share.rows), *share.spared)
            for change in surplus(share.menu, kept, reading.rows(share.menu)):
                yield f"{share.menu.path} {change.row}"
