"""The units of a run: what differs on each node, whether a unit may be touched, and the secrets that are made once."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from pyinfra.api.state import State

from core.model import ConfigError, Rack, image_lock, model_lock
from core.model.declared_secrets import secret_value
from core.model.image_lock import Pin
from core.model.lock_file import lock_path
from core.model.model_lock import ModelRecord
from core.model.secrets import SecretRef
from core.ops.managed_service import NO_CHANGES, ManagedService, Reads, ServiceChanges, ServiceState
from core.ops.run_context import run_value
from core.ops.shared_values import SharedValue, facts_of_nodes
from core.ops.shell import sudo_script
from core.util import managed_file
from core.util.event import Action, file_acted
from core.util.managed_file import ManagedFile
from core.util.scrub import declare
from serving import desired, programs
from serving.facts import AT_REST, ServingFacts
from serving.launch import UNIT_FILES
from serving.options import ServedUnit, served_units
from serving.services import remove_files, unit_service

FOLDER_STATE = "700 root:root"
_PLACEHOLDER = "0" * 64
"""Stands for a lease secret that is not compared."""


@dataclass
class RunSecrets:
    """The secrets of one run: those that rack.yaml refers to, and the lease secrets that it has made."""

    rack: Rack
    _resolved: dict[SecretRef, str] = field(default_factory=dict, repr=False)
    _leases: dict[str, str] = field(default_factory=dict, repr=False)

    def key(self, unit: ServedUnit) -> str | None:
        """Return the API key of a unit. Raises ValueError when it cannot be fetched; the message does not have it."""
        return None if unit.api.key is None else self.resolve(unit.api.key)

    def resolve(self, ref: SecretRef) -> str:
        """Return a secret, fetched once. Raises ValueError when that fails; the message does not have it."""
        if ref not in self._resolved:
            self._resolved[ref] = secret_value(self.rack, ref)
        return self._resolved[ref]

    def lease(self, unit: str) -> str:
        """Return the new lease secret of a unit, the same for all its nodes."""
        if unit not in self._leases:
            self._leases[unit] = secrets.token_hex(32)
            declare(self._leases[unit])
        return self._leases[unit]


@dataclass(frozen=True)
class UnitDifferences:
    """What of a unit differs on a node: its service, how the node has it, and paths that the unit no longer has
    there (`extra`)."""

    unit: ServedUnit
    service: ManagedService
    now: ServiceState
    extra: tuple[str, ...] = ()

    @property
    def contents(self) -> tuple[str, ...]:
        """The paths that would be written or removed, each of which a running unit uses."""
        return (*(file.path for file, _ in self.now.files), *self.extra)

    @property
    def touching(self) -> bool:
        """Whether agent and coordinator are restarted, but for what was stopped."""
        unread = self.service.reads is Reads.RESTART and any(state.reload for state in self.now.units.values())
        return bool(self.contents or self.now.pending or unread)

    def changes(self, *, programs: bool = False) -> ServiceChanges:
        """Return what brings the unit to its desired state. `programs`: those of the node were changed."""
        gone = NO_CHANGES
        if self.extra:
            gone = ServiceChanges(file_acted(Action.REMOVE, *self.extra), (sudo_script(remove_files(self.extra)),))
        now = replace(self.now, pending=self.now.pending or programs)
        return self.service.differences(now, also=gone)


@dataclass(frozen=True)
class ServingSurvey:
    """The readable nodes of one run, and the content of the lock file."""

    rack: Rack
    pins: Mapping[str, Pin]
    records: Mapping[str, ModelRecord]
    views: Mapping[str, ServingFacts]
    secrets: RunSecrets

    def units(self, node: str) -> list[ServedUnit]:
        """The declared units of a node, in the order of rack.yaml."""
        declared = served_units(self.rack).values()
        return [unit for unit in declared if node in unit.ranks(self.rack.nodes)]

    def head(self, unit: ServedUnit) -> str:
        """The node of the first rank."""
        return unit.ranks(self.rack.nodes)[0]

    def absent(self, unit: ServedUnit) -> list[str]:
        """The nodes of a unit of which nothing is known in this run."""
        return [name for name in unit.ranks(self.rack.nodes) if name not in self.views]

    def unlocked(self, unit: ServedUnit) -> list[str]:
        """What the lock file does not have of a unit."""
        return desired.unlocked(self.rack, unit, self.pins, self.records)

    def blockers(self, unit: ServedUnit) -> list[str]:
        """Why the files of a unit cannot be made."""
        return desired.blockers(self.rack, unit, self.pins, self.records)

    def up(self, unit: str) -> str:
        """Return by what a unit is seen to run, or to be about to; empty for a unit at rest. Raises ValueError."""
        for node, view in self.views.items():
            if view.runs(desired.unit_service(unit)):
                return f"its rank runs on {node}"
        for view in self.views.values():
            # Without its coordinator no rank runs for longer than its lease.
            if (
                view.runs(desired.unit_service(unit, "-coordinator"))
                and (state := view.record(unit).state) not in AT_REST
            ):
                return f"its coordinator reports {state}"
        return ""

    def may_run(self, unit: str) -> bool:
        """Whether a unit runs, or is about to, or it is unknown."""
        try:
            return bool(self.up(unit))
        except ValueError:
            return True

    def figures(self, unit: ServedUnit) -> Mapping[str, float]:
        """The seconds of the latest start of a unit, as far as its head is in this run."""
        head = self.head(unit)
        return self.views[head].record(unit.name).figures if head in self.views else {}

    def programs(self, node: str) -> list[ManagedFile]:
        """The programs of a node that differ."""
        return managed_file.differing(programs.programs(), self.views[node].files)

    def differences(self, unit: ServedUnit, node: str) -> UnitDifferences:
        """Return what of a unit differs on one of its nodes. Raises ValueError for a secret that cannot be used."""
        view = self.views[node]
        locked = desired.locked_unit(self.rack, unit, self.pins, self.records)
        made = desired.files(locked, node)
        head = node == locked.nodes[0]
        lease = self.secrets.lease(unit.name) if (renewed := self.renews_lease(unit)) else _PLACEHOLDER
        # The key is fetched for the head alone, which is the only node that has it.
        key = self.secrets.key(unit) if head or unit.api.key is None else "unused"
        private = desired.private_files(locked, node, key, lease)
        shared = desired.shared_secrets(unit, len(locked.nodes))
        changed = managed_file.differing(made, view.files) + [
            file.managed
            for file in private
            if (renewed if file.path in shared else view.files.get(file.path) != file.managed.state)
        ]
        paths = (*(file.path for file in made), *(file.path for file in private))
        service = unit_service(unit.name, paths, head=head, up=self.may_run(unit.name))
        now = ServiceState(
            view.systemd_units(service.units),
            tuple(zip(changed, managed_file.changes(changed, view.files), strict=True)),
            pending=service.mark in view.files,
        )
        known = {service.mark, desired.path(unit, "previous"), *paths}
        extra = tuple(path for path in view.installed.get(unit.name, ()) if path not in known)
        return UnitDifferences(unit, service, now, extra)

    def renews_lease(self, unit: ServedUnit) -> bool:
        """Whether the nodes of a unit do not share one valid lease secret, and what is made of it, as far as they are
        known."""
        names = unit.ranks(self.rack.nodes)
        views = [self.views[name] for name in names if name in self.views]
        lease, *_ = paths = desired.shared_secrets(unit, len(names))
        states = {path: {view.files.get(path) for view in views} for path in paths}
        if not all(lease in view.leases for view in views):
            return True
        return any(
            len(found) != 1 or any(one is None or one.permissions != "600 root:root" for one in found)
            for found in states.values()
        )

    def obstacle(self, differences: UnitDifferences, stale: list[ManagedFile]) -> str:
        """Return why a unit must not be touched now, or nothing. `stale`: the programs that differ on the node."""
        if not (stale or differences.touching):
            return ""
        contents = (*differences.contents, *(file.path for file in stale))
        unit = differences.unit
        what = ", ".join(PurePosixPath(path).name for path in contents) or "what its services have not read"
        if absent := self.absent(unit):
            return (
                f"unit {unit.name}: {what} would change, and {', '.join(absent)} of the same unit is not in this run, "
                "has failed, or cannot be read; run for all nodes of the unit"
            )
        if up := self.up(unit.name):
            # As it stands on the head: `sparkrack serve status` asks the coordinator, which reads it there.
            head = self.views.get(self.head(unit))
            previous = head is not None and desired.path(unit, "previous") in head.files
            version = " with its previous version, which `recreate` went back to" if previous else ""
            return (
                f"unit {unit.name} is up{version} ({up}), and {what} would change; run "
                f"`sparkrack serve recreate {unit.name}`, which stops, applies and starts "
                f"({away(self.figures(unit))}), or `sparkrack serve stop {unit.name}` and apply again"
            )
        return ""

    def by_hand(self, differences: UnitDifferences, node: str) -> list[str]:
        """Return how what runs on a node differs from its files, which are as declared or reported apart."""
        unit, view = differences.unit, self.views[node]
        written = {PurePosixPath(path).name for path in differences.contents}
        restart = f"`sparkrack serve restart {unit.name}` starts it as declared"
        found = []
        args = view.files.get(desired.path(unit, "args"))
        if f"{unit.name}.args" not in written and args and view.started_with(unit.name) - {args.sha256}:
            found.append(f"its rank on {node} was started with other arguments than {unit.name}.args has; {restart}")
        if not view.container(unit.name):
            return found
        if not view.runs(desired.service_name(unit)):
            what = f"container sparkrack-{unit.name} on {node} ({view.container(unit.name)}) is not of its service"
            return [f"{what}, and no rank starts beside it; `docker rm -f sparkrack-{unit.name}` there removes it"]
        if f"{unit.name}.env" not in written and (names := view.lacking(unit.name)):
            what = f"its container on {node} has not the {', '.join(names[:3])} of {unit.name}.env"
            found.append(f"{what}{f' and {len(names) - 3} more' if len(names) > 3 else ''}; {restart}")
        return found

    def undeclared(self, node: str) -> dict[str, list[str]]:
        """The units of which a node has files and is not a node, each with their paths."""
        declared = {unit.name for unit in self.units(node)}
        return {name: paths for name, paths in self.views[node].installed.items() if name not in declared}

    def folder_differs(self, node: str) -> bool:
        """Whether the folder of the units is missing, or its owner or mode differs."""
        return self.views[node].folders.get(str(UNIT_FILES)) != FOLDER_STATE


def away(figures: Mapping[str, float]) -> str:
    """Return a clause that says how long a unit is away when it is recreated.

    `figures`: of its latest start, from the record of the coordinator: seconds of gates, and from there until it was
    ready.
    """
    if "ready_s" not in figures:
        return "away for an unknown time: no figure of a good start is recorded"
    took = figures["ready_s"] + figures.get("gates_s", 0.0)
    return f"away for about {max(1, math.ceil(took / 60))} min: its last start took {took:.0f} s"


_before: SharedValue[ServingSurvey] = SharedValue()
_after: SharedValue[ServingSurvey] = SharedValue()


def run_secrets(state: State, rack: Rack) -> RunSecrets:
    """Return the secrets of a run."""
    return run_value(state, lambda: RunSecrets(rack), RunSecrets)


def installed_units(state: State, rack: Rack) -> ServingSurvey:
    """Return the units before this stage of a run installs them. Raises ValueError for a lock file that is broken."""
    return _before.get(state, lambda: _read_survey(state, rack))


def ready_units(state: State, rack: Rack) -> ServingSurvey:
    """Return the units when all nodes of this stage have them, read again where a node was changed."""
    return _after.get(state, lambda: _read_survey(state, rack))


def _read_survey(state: State, rack: Rack) -> ServingSurvey:
    lock = lock_path(rack.source)
    try:
        pins, records = image_lock.read(lock), model_lock.read_declared(lock, rack.models)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    views = facts_of_nodes(state, rack, "serving", lambda _, reading: ServingFacts(reading).whole())
    return ServingSurvey(rack, pins, records, views, run_secrets(state, rack))
