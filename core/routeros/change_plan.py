"""A plan as data: changes in batches, in the order they are written, with the links that each disturbs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.model.secrets import SecretRef
from core.routeros.diff import RowChange

if TYPE_CHECKING:
    from core.model.cabling import Leg, Port


@dataclass(frozen=True)
class UnmanagedRow:
    """A row that rack.yaml does not declare, in a menu that we write to."""

    menu: str
    row: str

    def __str__(self) -> str:
        return f"{self.menu} {self.row}"


DISARMING = "rollback timer: disturbs nothing"
"""The effect of disarming what an interrupted run left."""


SPARE = 16
"""Writes beyond the limit of one transaction for ports that are bound again: eight legs, twice."""


@dataclass(frozen=True)
class AffectedLink:
    """A cabled leg: the switch's interface (its .id and its name of the day) and the port of a node behind
    it."""

    id: str
    name: str
    leg: Leg
    port: Port


@dataclass(frozen=True)
class ChangeBatch:
    """Changes that are written one after the other, what they disturb, and the links that are up when they settled.
    rebinds: the ids of bridge ports that are bound to the chip again then.
    """

    title: str
    effect: str
    changes: tuple[RowChange, ...]
    settles: tuple[AffectedLink, ...] = ()
    rebinds: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of rows that are written: each bridge port that is bound again is written twice."""
        return len(self.changes) + 2 * len(self.rebinds)


@dataclass(frozen=True)
class ChangePlan:
    """All differences, as batches in the order they are written; () = the switch is as declared.

    unmanaged: rows of menus we write to that rack.yaml does not declare; they are not changed. faults: correctly
    configured things that do not work, which no write of ours would fix. notices: further notices before the plan is
    executed. armed: rollback timers that interrupted runs left on the switch; they are disarmed first. upgrades: why
    another release must be installed, and what makes it urgent.
    """

    batches: tuple[ChangeBatch, ...]
    unmanaged: tuple[UnmanagedRow, ...] = ()
    faults: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    armed: tuple[str, ...] = ()
    upgrades: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to write."""
        return not self.batches and not self.armed

    @property
    def disarms(self) -> tuple[str, ...]:
        """One line for each rollback timer that is disarmed."""
        return tuple(f"disarm {name}, which an interrupted run left: it would undo that run" for name in self.armed)

    @property
    def changes(self) -> tuple[RowChange, ...]:
        return tuple(change for batch in self.batches for change in batch.changes)

    @property
    def effects(self) -> tuple[str, ...]:
        """One line a batch: what is changed and which links it disturbs."""
        timers = (DISARMING,) if self.armed else ()
        return (*timers, *(f"{batch.title}: {batch.effect}" for batch in self.batches))

    @property
    def lines(self) -> tuple[str, ...]:
        """The effects, below each the rows it changes with old and new value of each field."""
        timers = (DISARMING, *(f"  {line}" for line in self.disarms)) if self.armed else ()
        return (*timers, *(line for batch in self.batches for line in _batch_lines(batch)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notices besides the changes."""
        return (
            *(f"fault: {text}" for text in (*self.upgrades, *self.faults)),
            *(f"left alone, not managed: {text}" for text in self.unmanaged),
            *self.notices,
        )

    def portions(self, most: int) -> tuple[tuple[ChangeBatch, ...], ...]:
        """Divide the batches into transactions of at most `most` changed rows, never splitting a batch. Ports that are
        bound again are extra, up to SPARE writes: a run killed between two transactions leaves an intermediate state.
        """
        portions: list[list[ChangeBatch]] = []
        for batch in self.batches:
            together = [*portions[-1], batch] if portions else []
            rows = sum(len(done.changes) for done in together)
            if together and rows <= most and sum(done.size for done in together) <= most + SPARE:
                portions[-1].append(batch)
            else:
                portions.append([batch])
        return tuple(tuple(portion) for portion in portions)


def secrets_of(todo: ChangePlan) -> tuple[SecretRef, ...]:
    """Return the references to secrets that the changes write, each once."""
    values = (value for change in todo.changes for _, value in change.values)
    return tuple(dict.fromkeys(value for value in values if isinstance(value, SecretRef)))


def _batch_lines(batch: ChangeBatch) -> Iterator[str]:
    yield f"{batch.title}: {batch.effect}"
    yield from (f"  {change}" for change in batch.changes)
