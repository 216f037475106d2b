"""What a node says of its images, and what the nodes of a run need together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roles.images import scripts, spread, state
from sparkrack.fleet import Node, Rack, mebibytes
from sparkrack.fleet.pins import Pin, lock_path
from sparkrack.ops import probe

probe.register(
    "images",
    probe.Probe(
        commands={
            # Never a question to an engine that does not run: its socket would start it. An engine that does not
            # answer is an answer as well: it matters only where rack.yaml declares images.
            state.STOCK: "p=$(cat /run/docker.pid 2>/dev/null) && "
            f'[ "$(cat "/proc/$p/comm" 2>/dev/null)" = dockerd ] || {{ echo {state.NO_ENGINE}; exit 0; }}; '
            "timeout 20 docker image ls --no-trunc --digests "
            "--format '{{.ID}} {{.Repository}} {{.Tag}} {{.Digest}} {{.Size}}' || "
            f'echo "{state.NO_ANSWER}, exit $?"',
            state.ROOM: 'r=$(sed -n \'s/.*"data-root"[[:space:]]*:[[:space:]]*"\\([^"]*\\)".*/\\1/p\' '
            "/etc/docker/daemon.json 2>/dev/null | head -n 1); "
            '[ -n "$r" ] || r=/var/lib/docker; for d in "$r" /var/lib/containerd; do [ ! -d "$d" ] || '
            'echo "$(df -B1 --output=avail "$d" | tail -n 1 | tr -d " ") $d"; done',
            # systemd removes the folder when the unit has ended.
            state.TRANSFERS: f"for c in /sys/fs/cgroup/system.slice/{scripts.UNIT}*.service; do "
            '[ ! -d "$c" ] || { c=${c##*/}; echo "${c%.service}"; }; done',
        },
    ),
)


@dataclass(frozen=True)
class View:
    """Images on a node as they were read. Raises UnknownError or ValueError where they cannot be told."""

    node: Node
    reading: probe.Reading

    @property
    def engine(self) -> bool:
        """Whether docker runs, so that it can be told what the node holds."""
        return self.reading.text(state.STOCK).strip() != state.NO_ENGINE

    @cached_property
    def stock(self) -> state.Stock:
        """What it holds."""
        return state.stock(self.reading.text(state.STOCK))

    @cached_property
    def room(self) -> dict[str, int]:
        """Free bytes where docker keeps images."""
        return state.room(self.reading.text(state.ROOM))

    @cached_property
    def running(self) -> frozenset[str]:
        """The units of an earlier run that still fetch."""
        units = self.reading.text(state.TRANSFERS).split()
        for unit in units:
            if not unit.startswith(scripts.UNIT):
                raise ValueError(f"{state.TRANSFERS}: cannot be told from {unit[:80]!r}")
        return frozenset(units)

    def whole(self) -> View:
        """The same, after a look at all of it."""
        _ = self.stock, self.room, self.running
        return self


@dataclass(frozen=True)
class Step:
    """One image that a node does not have as it shall: `there` under another name, and `old` has the name."""

    goal: state.Goal
    there: bool
    old: str | None


@dataclass(frozen=True)
class Survey:
    """The nodes of one run that can be told, by rank, and what the lock file says.

    Raises ValueError where the nodes contradict one another and the lock file does not settle it.
    """

    rack: Rack
    pins: Mapping[str, Pin]
    views: Mapping[str, View]

    @cached_property
    def roads(self) -> spread.Roads:
        """Who reaches whom."""
        return spread.Roads(self.rack)

    @cached_property
    def goals(self) -> list[state.Goal]:
        """What each image is, for the whole rack."""
        stocks = {name: view.stock for name, view in self.views.items()}
        return [state.settle(image, self.pins.get(image.name), stocks) for image in state.images(self.rack)]

    @property
    def found(self) -> dict[str, Pin]:
        """What the nodes say of images that the lock file does not have; the first node of the run records it."""
        return {goal.image.name: goal.pin for goal in self.goals if goal.new and goal.pin}

    def records(self, node: str) -> dict[str, Pin]:
        """What of it this node's operation shall record."""
        return self.found if node == next(iter(self.views), None) else {}

    def steps(self, node: str) -> list[Step]:
        """What a node lacks."""
        held, steps = self.views[node].stock, []
        for goal in self.goals:
            row = held.named(goal.image)
            if goal.pin is None or row is None or row.id != goal.pin.id:
                steps.append(Step(goal, node in goal.holders, row.id if row else None))
        return steps

    def takers(self, goal: state.Goal) -> list[str]:
        """The nodes that do not hold an image and can take it."""
        return [name for name in self.views if name not in goal.holders and not self.obstacles(name)]

    def givers(self, goal: state.Goal) -> list[str]:
        """The nodes that can give it: docker's own store writes an image out whole before it sends it."""
        needed = (goal.size or 0) + state.MARGIN
        return [name for name in self.views if name in goal.holders and min(self.views[name].room.values()) >= needed]

    def obstacles(self, node: str) -> list[str]:
        """Why the role may not touch this node."""
        view, steps = self.views[node], self.steps(node)
        lines = [line for goal in self.goals if (line := state.other_store(goal, view.stock))]
        least = mebibytes(self.rack.preflight.disk_free) << 20
        needed = state.need([step.goal for step in steps if not step.there], least)
        lines += [
            f"{folder} has {free // 10**6} MB free, the images it lacks need {needed // 10**6} MB"
            for folder, free in view.room.items()
            if free < needed
        ]
        lock = lock_path(self.rack.source)
        if any(goal.new or goal.pin is None for goal in self.goals) and not _writable(lock):
            lines.append(f"{lock}: cannot be written, and an image is not in it yet")
        return lines

    def tell(self, node: str) -> list[str]:
        """What will be done on a node, a line each; from whom it really takes an image is seen when it does."""
        lines = []
        for step in self.steps(node):
            goal, pin = step.goal, step.goal.pin
            if not step.there:
                way = spread.forecast(self.roads, self.givers(goal), self.takers(goal))[node]
                digest = pin.digest if pin else None
                lines.append(
                    f"copy {goal.image.local} from {way}"
                    if isinstance(way, spread.Route)
                    else f"pull {goal.image.outside(digest)} on {node}"
                )
            if step.old:
                new = state.short(pin.id) if pin else "what is pulled"
                lines.append(f"{goal.image.local}: {state.short(step.old)} -> {new}; the old one stays without a name")
            elif step.there and pin:
                lines.append(f"name {state.short(pin.id)} {goal.image.local}")
        lines += [
            f"record {name} as {state.short(pin.id)} in {lock_path(self.rack.source).name}"
            for name, pin in self.records(node).items()
        ]
        return lines


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK)
