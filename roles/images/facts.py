"""Facts of a node about its images, and the common needs of the nodes of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from core.model import Node, Rack, mebibytes
from core.model.image_lock import Pin
from core.model.lock_file import lock_path
from core.ops import distribution, host_facts
from core.ops.detached_unit import list_running, running_units
from core.util.event import Action, Event, acted, value_change
from roles.images import desired, scripts
from roles.preflight.options import PreflightOptions

host_facts.register(
    "images",
    host_facts.Probe(
        commands={
            # An engine that does not answer is an answer as well: it matters only where rack.yaml declares images.
            desired.STOCK: f'{desired.list_images(20)} || echo "{desired.NO_ANSWER}, exit $?"',
            desired.ROOM: scripts.FREE_BYTES
            + 'r=$(sed -n \'s/.*"data-root"[[:space:]]*:[[:space:]]*"\\([^"]*\\)".*/\\1/p\' '
            "/etc/docker/daemon.json 2>/dev/null | head -n 1); "
            '[ -n "$r" ] || r=/var/lib/docker; for d in "$r" /var/lib/containerd; do [ ! -d "$d" ] || '
            'echo "$(free_bytes "$d") $d"; done',
            desired.TRANSFERS: list_running(scripts.UNIT),
        },
    ),
)


@dataclass(frozen=True)
class ImagesFacts:
    """Image facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    node: Node
    reading: host_facts.HostReading

    @property
    def engine(self) -> bool:
        """Whether docker runs, so that the images are known."""
        return self.reading.text(desired.STOCK).strip() != desired.NO_ENGINE

    @cached_property
    def stock(self) -> desired.LocalImages:
        """Images of the node."""
        return desired.local_images(self.reading.text(desired.STOCK))

    @cached_property
    def room(self) -> dict[str, int]:
        """Free bytes where docker keeps images."""
        return desired.free_space(self.reading.text(desired.ROOM))

    @cached_property
    def running(self) -> frozenset[str]:
        """The units of an earlier run that still fetch."""
        return running_units(self.reading.text(desired.TRANSFERS), scripts.UNIT, desired.TRANSFERS)

    def whole(self) -> ImagesFacts:
        """The same, after a look at all of it."""
        _ = self.stock, self.room, self.running
        return self


@dataclass(frozen=True)
class ImageStep:
    """One image that a node lacks: `there` if it exists under another name, and `old` is the image with the name."""

    goal: desired.ImageGoal
    there: bool
    old: str | None


@dataclass(frozen=True)
class Survey:
    """The readable nodes of one run, by rank, and the content of the lock file.

    Raises ValueError where the nodes disagree and the lock file does not decide.
    """

    rack: Rack
    pins: Mapping[str, Pin]
    views: Mapping[str, ImagesFacts]

    @cached_property
    def roads(self) -> distribution.Routes:
        """Routes between the nodes."""
        return distribution.Routes(self.rack)

    @cached_property
    def goals(self) -> list[desired.ImageGoal]:
        """Each image, for the whole rack."""
        stocks = {name: view.stock for name, view in self.views.items()}
        return [desired.settle(image, self.pins.get(image.name), stocks) for image in desired.images(self.rack)]

    @property
    def found(self) -> dict[str, Pin]:
        """Images on the nodes that the lock file does not have; the first node of the run records them."""
        return {goal.image.name: goal.pin for goal in self.goals if goal.new and goal.pin}

    def records(self, node: str) -> dict[str, Pin]:
        """Return the records that this node's operation writes."""
        return self.found if node == next(iter(self.views), None) else {}

    def unasked(self, node: str) -> list[desired.ImageGoal]:
        """Return the images about whose NCCL nothing is recorded, and of whose holders this node is the first."""
        goals = [goal for goal in self.goals if goal.pin and goal.pin.nccl is None]
        return [goal for goal in goals if node == next((name for name in self.views if name in goal.holders), None)]

    def steps(self, node: str) -> list[ImageStep]:
        """Return the missing images of a node."""
        held, steps = self.views[node].stock, []
        for goal in self.goals:
            row = held.named(goal.image)
            if goal.pin is None or row is None or row.id != goal.pin.id:
                steps.append(ImageStep(goal, node in goal.holders, row.id if row else None))
        return steps

    def takers(self, goal: desired.ImageGoal) -> list[str]:
        """The nodes that do not hold an image and can take it."""
        return [name for name in self.views if name not in goal.holders and not self.obstacles(name)]

    def givers(self, goal: desired.ImageGoal) -> list[str]:
        """The nodes that can give it: docker's own store writes an image out whole before it sends it."""
        needed = (goal.size or 0) + desired.MARGIN
        return [name for name in self.views if name in goal.holders and min(self.views[name].room.values()) >= needed]

    def obstacles(self, node: str) -> list[str]:
        """Return why the role may not change this node."""
        view, steps = self.views[node], self.steps(node)
        lines = [line for goal in self.goals if (line := desired.other_store(goal, view.stock))]
        least = mebibytes(self.rack.options(PreflightOptions).disk_free) << 20
        needed = desired.need([step.goal for step in steps if not step.there], least)
        lines += [
            f"{folder} has {free // 10**6} MB free, the images it lacks need {needed // 10**6} MB"
            for folder, free in view.room.items()
            if free < needed
        ]
        lock = lock_path(self.rack.source)
        if any(goal.new or goal.pin is None for goal in self.goals) and not _is_folder_writable(lock):
            lines.append(f"{lock}: cannot be written, and an image is not in it yet")
        elif self.unasked(node) and not _is_folder_writable(lock):
            lines.append(f"{lock}: cannot be written, and NCCL of an image is not in it yet")
        return lines

    def changes(self, node: str) -> list[Event]:
        """What will be done on a node; from whom it really takes an image is seen when it does."""
        changes: list[Event] = []
        for step in self.steps(node):
            goal, pin = step.goal, step.goal.pin
            if not step.there:
                way = distribution.forecast_chain(self.roads, self.givers(goal), self.takers(goal))[node]
                digest = pin.digest if pin else None
                changes += (
                    acted(Action.COPY, goal.image.local, detail=f"from {way}")
                    if isinstance(way, distribution.Route)
                    else acted(Action.PULL, goal.image.outside(digest), detail=f"on {node}")
                )
            if step.old:
                new = desired.short(pin.id) if pin else "what is pulled"
                changes.append(
                    value_change(goal.image.local, desired.short(step.old), new, "the old one stays without a name")
                )
            elif step.there and pin:
                changes += acted(Action.NAME, desired.short(pin.id), detail=goal.image.local)
        lock = lock_path(self.rack.source).name
        for name, pin in self.records(node).items():
            changes += acted(Action.RECORD, name, detail=f"as {desired.short(pin.id)} in {lock}")
        for goal in self.unasked(node):
            changes += acted(Action.RECORD, goal.image.name, detail=f"with its NCCL in {lock}")
        return changes


def _is_folder_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK)
