"""Facts of a node about its models, and the common needs of the nodes of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from shlex import quote

from core.model import Node, Rack, mebibytes
from core.model.errors import truncate
from core.model.lock_file import lock_path
from core.model.model_lock import ModelFile, ModelRecord
from core.model.models import MODEL_STORE
from core.ops import distribution, host_facts
from core.ops.detached_unit import list_running, running_units
from core.probes.protocol import NulQuestion
from core.util.event import Action, Event, EventKind, acted, value_change
from roles.models import desired, scripts
from roles.models.desired import ModelGoal
from roles.preflight.options import PreflightOptions

_LIMIT = "timeout 15 sh -c"
"""A disk that does not answer matters only where rack.yaml declares models, so it is an answer as well."""
_LIST = (
    f"{{ {{ [ ! -e {MODEL_STORE} ] || find {MODEL_STORE}/ -ignore_readdir_race -mindepth 1 "
    f"-printf '%y %s %T@ %P\\0'; }} && printf '{desired.END}\\0'; }} | head -c {desired.MAX_LISTING + 1}"
)
"""Sizes and times alone: no file of a model is read."""
_READ_RECORDS = (
    f'for f in {MODEL_STORE}/*/.sparkrack/record; do [ ! -f "$f" ] || [ -L "$f" ] || {{ n=${{f#{MODEL_STORE}/}}; '
    f'printf \'= %s\\n\' "${{n%%/*}}"; head -c {desired.MAX_LISTING} "$f"; }}; done'
)
_MEASURE = (
    f'd={MODEL_STORE}; while [ ! -d "$d" ]; do d=$(dirname "$d"); done; '
    "df -B1 --output=avail \"$d\" | tail -n 1 | tr -d ' '"
)

host_facts.register(
    "models",
    host_facts.Probe(
        commands={
            desired.FILES: NulQuestion(f"{_LIMIT} {quote(_LIST)} || true"),
            desired.RECORDS: f"{_LIMIT} {quote(_READ_RECORDS)} || true",
            desired.ROOM: f"{_LIMIT} {quote(_MEASURE)} || true",
            desired.TRANSFERS: list_running(scripts.UNIT),
        },
    ),
)


@dataclass(frozen=True)
class ModelsFacts:
    """Model facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    node: Node
    reading: host_facts.HostReading

    @cached_property
    def store(self) -> desired.StoredModels:
        """What the node has below /srv/models."""
        return desired.store(self.reading.content(desired.FILES) or b"", self.reading.text(desired.RECORDS))

    @cached_property
    def room(self) -> int:
        """Free bytes there."""
        return desired.free_space(self.reading.text(desired.ROOM))

    @cached_property
    def running(self) -> frozenset[str]:
        """The units of an earlier run that still fetch."""
        return running_units(self.reading.text(desired.TRANSFERS), scripts.UNIT, desired.TRANSFERS)

    def whole(self) -> ModelsFacts:
        """The same, after a look at all of it."""
        _ = self.store, self.room, self.running
        return self

    def lacks(self, goal: ModelGoal) -> list[ModelFile]:
        """The files of a model that the node does not have, or that are not known to be right."""
        return self.store.of(goal.model.name).lacks(goal.files)

    def has(self, goal: ModelGoal) -> bool:
        """Whether the node has the whole model."""
        return goal.record is not None and not self.lacks(goal)


@dataclass(frozen=True)
class ModelSurvey:
    """The readable nodes of one run, by rank, and the content of the lock file."""

    rack: Rack
    records: Mapping[str, ModelRecord]
    views: Mapping[str, ModelsFacts]

    @cached_property
    def roads(self) -> distribution.Routes:
        """Routes between the nodes."""
        return distribution.Routes(self.rack)

    @cached_property
    def goals(self) -> list[ModelGoal]:
        """Each model, for the whole rack."""
        return [desired.goal(model, self.records.get(name)) for name, model in self.rack.models.items()]

    def steps(self, node: str) -> list[ModelGoal]:
        """The models that a node does not have as a whole."""
        return [goal for goal in self.goals if not self.views[node].has(goal)]

    def holders(self, goal: ModelGoal) -> list[str]:
        """The nodes that have a model."""
        return [name for name, view in self.views.items() if view.has(goal)]

    def takers(self, goal: ModelGoal) -> list[str]:
        """The nodes that do not have a model and can take it."""
        return [name for name, view in self.views.items() if not view.has(goal) and not self.obstacles(name)]

    def obstacles(self, node: str) -> list[str]:
        """Return why the role may not change this node."""
        view, steps = self.views[node], self.steps(node)
        lines = [
            f"{goal.model.folder}: {line}; move it away"
            for goal in steps
            for line in view.store.of(goal.model.name).in_the_way(goal.files)
        ]
        needed = sum(desired.need(view.store.of(goal.model.name), goal.files) for goal in steps)
        if any(goal.record is None for goal in steps):
            # What is not listed yet is checked again before its first byte, when its size is known.
            needed = max(needed, mebibytes(self.rack.options(PreflightOptions).disk_free) << 20)
        if needed and view.room < needed + desired.MARGIN:
            lines.append(
                f"{MODEL_STORE} has {desired.amount(view.room)} free, "
                f"the models it lacks need {desired.amount(needed + desired.MARGIN)}"
            )
        lock = lock_path(self.rack.source)
        if any(goal.record is None for goal in steps) and not os.access(lock.parent, os.W_OK):
            lines.append(f"{lock}: cannot be written, and a model is not in it yet")
        return lines

    def changes(self, node: str) -> list[Event]:
        """What will be done on a node; from whom it really takes a model is seen when it does."""
        changes: list[Event] = []
        for goal in self.steps(node):
            name, lacking = goal.model.name, self.views[node].lacks(goal)
            stored = self.views[node].store.of(name)
            missing = [file for file in lacking if stored.is_missing(file)]
            if goal.record is not None and not missing:
                changes.append(
                    value_change(name, "not verified", "verified", f"{_count_files(lacking)} read, none fetched")
                )
                continue
            way = distribution.forecast_chain(self.roads, self.holders(goal), self.takers(goal))[node]
            what = f": {_count_files(missing)} of {len(goal.files)}, {_format_size(missing)}" if goal.record else ""
            changes += (
                acted(Action.COPY, name, detail=f"from {way}{what}")
                if isinstance(way, distribution.Route)
                else acted(Action.PULL, name, detail=f"from {goal.origin} to {node}{what}")
            )
        return changes

    def unmanaged(self, node: str) -> list[Event]:
        """What is in the store of a node and in no declared model. No run removes it."""
        store = self.views[node].store
        found = [
            Event(
                EventKind.UNMANAGED, path=f"{MODEL_STORE}/{truncate(name)}", detail="rack.yaml declares no such model"
            )
            for name in sorted(store.models)
            if name not in self.rack.models and name != "lost+found"  # of a disk that is mounted there
        ]
        for goal in self.goals:
            stored = store.of(goal.model.name)
            odd = stored.undeclared(goal.files) if goal.record else []
            if dropped := stored.dropped(goal.files) if goal.record else []:
                size = desired.amount(sum(stored.entries[path].size for path in dropped))
                where = f"{_shorten_paths(dropped)}, {size}"
                what = f"fetched before, and no longer files of the model: {where}; remove them by hand"
                found.append(Event(EventKind.UNMANAGED, path=str(goal.model.folder), detail=what))
                odd = [path for path in odd if path not in dropped]
            if odd:
                what = f"no files of the model: {_shorten_paths(odd)}"
                found.append(Event(EventKind.UNMANAGED, path=str(goal.model.folder), detail=what))
        return found


def _shorten_paths(paths: list[str]) -> str:
    return ", ".join(map(truncate, paths[:3])) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _count_files(files: list[ModelFile]) -> str:
    return f"{len(files)} file{'' if len(files) == 1 else 's'}"


def _format_size(files: list[ModelFile]) -> str:
    return desired.amount(sum(file.size for file in files))
