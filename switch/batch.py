"""A plan as data: changes in batches, in the order they are written, with whom each disturbs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .diff import Change

if TYPE_CHECKING:
    from sparkrack.fleet.cabling import Leg, Port


DISARMING = "rollback timer: disturbs nothing"
"""The effect of disarming what an interrupted run left."""


SPARE = 16
"""Writes beyond the limit of one transaction for ports that are bound anew: eight legs, twice."""


@dataclass(frozen=True)
class Link:
    """A cabled leg: the switch's interface (its .id and its name of the day) and the port of a node behind
    it."""

    id: str
    name: str
    leg: Leg
    port: Port


@dataclass(frozen=True)
class Batch:
    """Changes that are written one after the other, what they disturb, and the links that are up when they
    settled. rebinds: the ids of bridge ports that are bound to the chip anew then."""

    title: str
    effect: str
    changes: tuple[Change, ...]
    settles: tuple[Link, ...] = ()
    rebinds: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many rows are written: each bridge port that is bound anew is written twice."""
        return len(self.changes) + 2 * len(self.rebinds)


@dataclass(frozen=True)
class Plan:
    """Everything that differs, as batches in the order they are written; () = the switch is as declared.

    unmanaged: rows of menus we write to that rack.yaml does not declare; they are left alone. faults: what
    is configured right and does not work, which no write of ours would mend. told: what else is to be known
    before it is carried out. armed: rollback timers that interrupted runs left on the switch; they are disarmed
    first.
    """

    batches: tuple[Batch, ...]
    unmanaged: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    armed: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is to be written."""
        return not self.batches and not self.armed

    @property
    def disarms(self) -> tuple[str, ...]:
        """One line for each rollback timer that is disarmed."""
        return tuple(f"disarm {name}, which an interrupted run left: it would undo that run" for name in self.armed)

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for batch in self.batches for change in batch.changes)

    @property
    def effects(self) -> tuple[str, ...]:
        """One line a batch: what is changed and whom it disturbs."""
        timers = (DISARMING,) if self.armed else ()
        return (*timers, *(f"{batch.title}: {batch.effect}" for batch in self.batches))

    @property
    def lines(self) -> tuple[str, ...]:
        """The effects, below each the rows it changes with old and new value of each field."""
        timers = (DISARMING, *(f"  {line}" for line in self.disarms)) if self.armed else ()
        return (*timers, *(line for batch in self.batches for line in _lines(batch)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is told besides the changes."""
        return (
            *(f"fault: {text}" for text in self.faults),
            *(f"left alone, not managed: {text}" for text in self.unmanaged),
            *self.told,
        )

    def portions(self, most: int) -> tuple[tuple[Batch, ...], ...]:
        """The batches dealt into transactions of at most `most` changed rows, never cutting a batch. Ports that are
        bound anew come on top, up to SPARE writes: killed between two transactions, a run leaves a state between."""
        portions: list[list[Batch]] = []
        for batch in self.batches:
            together = [*portions[-1], batch] if portions else []
            rows = sum(len(done.changes) for done in together)
            if together and rows <= most and sum(done.size for done in together) <= most + SPARE:
                portions[-1].append(batch)
            else:
                portions.append([batch])
        return tuple(tuple(portion) for portion in portions)


def _lines(batch: Batch) -> Iterator[str]:
    yield f"{batch.title}: {batch.effect}"
    yield from (f"  {change}" for change in batch.changes)
