"""Install the units of a node, and hand the desired state of each to its coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.errors import printable_line
from core.model.fields import seconds
from core.ops import host_facts, remote_files
from core.ops.apply_role import runs
from core.ops.managed_service import ServiceChanges, ServiceState
from core.ops.operation import Changeset, operation_on_host
from core.ops.shell import sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, file_acted
from serving import ROLE, desired
from serving import run_inventory as survey
from serving.facts import ServingFacts, starts_again
from serving.gateway_apply import install_gateway
from serving.launch import UNIT_FILES
from serving.options import ServedUnit, served_units, serving_of
from serving.programs import COORDINATOR
from serving.run_inventory import ServingSurvey, UnitDifferences
from serving.services import STATE_FOLDER, unit_service

_COORDINATOR_SECONDS = 30
"""Seconds that a coordinator may take to answer after its start."""


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Install the programs, files, secrets and services of each unit on its nodes, hand `state` to its
    coordinator, then install the gateway. Without a section `serving` nothing is done.

    Does not wait until a unit is ready, and touches none that runs.
    """
    if serving_of(rack):
        install_units(name="Install the units of inference engines", rack=rack, node=node)
        set_desired_states(name="Have the units up or down", rack=rack, node=node)
        install_gateway(name="Install the gateway of the units", rack=rack, node=node)


@dataclass(frozen=True)
class NodeUnits:
    """The units of one node in a run. `locks_later`: the plan of a run that records images and models before."""

    survey: ServingSurvey
    node: str
    locks_later: bool = False

    @property
    def view(self) -> ServingFacts:
        """What the node has."""
        return self.survey.views[self.node]


def _read_installed_units(host: Host, rack: Rack, node: Node) -> NodeUnits:
    ServingFacts(host_facts.read(host, "serving")).whole()
    found = survey.installed_units(host.state, rack)
    return NodeUnits(found, node.name, not host.state.is_executing and runs("images") and runs("models"))


def _read_units_to_change(host: Host, rack: Rack, node: Node) -> UnitsToChange:
    ServingFacts(host_facts.read(host, "serving")).whole()
    return UnitsToChange(survey.ready_units(host.state, rack), node.name, host.state.is_executing)


@dataclass
class _Steps:
    """What comes of the units of a node, one after the other."""

    blockers: list[str] = field(default_factory=list)
    warnings: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    commands: list[StringCommand] = field(default_factory=list)
    provisional: bool = False

    def add(self, changes: ServiceChanges) -> None:
        """Add the changes of a service."""
        self.events += changes.events
        self.commands += changes.commands

    def changeset(self, in_sync_reason: str) -> Changeset:
        """All of it as a changeset: with a blocker nothing is changed."""
        if self.blockers:
            return Changeset(blockers=tuple(self.blockers), warnings=tuple(self.warnings))
        if not self.events:
            return Changeset(warnings=tuple(self.warnings), in_sync_reason=in_sync_reason)
        return Changeset(
            warnings=tuple(self.warnings),
            events=tuple(self.events),
            commands=tuple(self.commands),
            provisional=self.provisional,
        )


@operation_on_host(_read_installed_units)
def install_units(units: NodeUnits) -> Changeset:
    """Write what differs of the units of a node and start their agents and coordinators. A unit that is up is
    refused."""
    found, node = units.survey, units.node
    steps, ready = _Steps(), list[UnitDifferences]()
    declared = found.units(node)
    stale = found.programs(node) if declared else []
    for unit in declared:
        if found.unlocked(unit) and units.locks_later:
            detail = "its files are known when the images and models of this run are in the lock file"
            steps.events += acted(Action.INSTALL, f"unit {unit.name}", detail=detail)
            steps.provisional = True
        elif blockers := found.blockers(unit):
            steps.blockers += blockers
        else:
            differences = found.differences(unit, node)
            if obstacle := found.obstacle(differences, stale):
                steps.blockers.append(obstacle)
            for text in found.by_hand(differences, node):
                steps.warnings.append(Event(EventKind.BROKEN, subject=f"unit {unit.name}", detail=text))
            ready.append(differences)
    _remove_undeclared(units, steps)
    if declared and found.folder_differs(node):
        steps.events += file_acted(
            Action.PERMISSIONS if str(UNIT_FILES) in units.view.folders else Action.WRITE, f"{UNIT_FILES}/"
        )
        steps.commands.append(sudo_script(f"umask 022; install -d -m 700 -o root -g root {UNIT_FILES}"))
    if stale:
        # The programs belong to all units of the node.
        for one in ready:
            steps.commands += one.service.set_mark()
        steps.events += managed_file.changes(stale, units.view.files)
        steps.commands += remote_files.put_files(stale)
    for one in ready:
        steps.add(one.changes(programs=bool(stale)))
    return steps.changeset("the units are installed" if declared else "no unit of rack.yaml is on this node")


def _remove_undeclared(units: NodeUnits, steps: _Steps) -> None:
    """Remove the units that the node no longer has, unless they run."""
    for name, paths in units.survey.undeclared(units.node).items():
        try:
            up = units.survey.up(name)
        except ValueError as unknown:
            up = str(unknown)
        if up:
            stop = f"{COORDINATOR} {UNIT_FILES}/{name}.json down"
            detail = f"rack.yaml has no such unit on this node, and it is up ({up}); `{stop}` on its head stops it"
            steps.warnings.append(Event(EventKind.UNMANAGED, subject=f"unit {name}", detail=detail))
            continue
        service = unit_service(name, paths, head=True)
        now = ServiceState(units.view.systemd_units(service.units))
        # The versions that are kept have the number of their generation in their names.
        then = (
            f"systemctl stop {desired.unit_service(name)} 2> /dev/null || true; rm -rf {UNIT_FILES}/{name}.files; "
            f"rm -f {STATE_FOLDER}/previous/{name}.*.tar"
        )
        event = acted(Action.STOP_AND_REMOVE, f"unit {name}", detail="rack.yaml has no such unit on this node")
        steps.add(replace(service.removal(now, "", then), events=event))


@dataclass(frozen=True)
class UnitsToChange:
    """The units of one node when all nodes of the run have theirs. `executing`: not only planned."""

    survey: ServingSurvey
    node: str
    executing: bool


@operation_on_host(_read_units_to_change)
def set_desired_states(units: UnitsToChange) -> Changeset:
    """Hand the desired state of rack.yaml to the coordinators of a node. A unit that is held is reported, and not
    started."""
    found, steps = units.survey, _Steps()
    for unit in found.units(units.node):
        if found.head(unit) != units.node:
            continue
        record = found.views[units.node].record(unit.name)
        if text := _slot_blocker(found, unit):
            steps.blockers.append(text)
        elif unit.state == "down":
            if record.desired_state == "up":
                steps.events.append(Event(EventKind.RESTART, subject=f"unit {unit.name}", action=Action.STOP))
                steps.commands.append(_desired_state(unit))
        elif record.state == "held":
            verb, does = ("start", "starts it") if starts_again(record.cause) else ("logs", "shows why")
            detail = f"held: {printable_line(record.reason)[:300]}; `sparkrack serve {verb} {unit.name}` {does}"
            steps.warnings.append(Event(EventKind.BROKEN, subject=f"unit {unit.name}", detail=detail))
        elif record.desired_state == "down" or record.state == "down":
            steps.blockers += _start_blockers(units, unit)
            detail = f"a completion proves it, within {seconds(unit.probe.ready)} s"
            steps.events.append(
                Event(EventKind.RESTART, subject=f"unit {unit.name}", action=Action.START, detail=detail)
            )
            steps.commands.append(_desired_state(unit))
    return steps.changeset("each unit has the desired state of rack.yaml")


def _slot_blocker(found: ServingSurvey, unit: ServedUnit) -> str:
    """Return why the desired state of a unit is not changed: another unit of its slot is up than rack.yaml has, which
    `serve use` changes one after the other, with a way back."""
    if unit.slot is None:
        return ""
    same = [one for one in served_units(found.rack).values() if one.slot == unit.slot]
    declared = next((one for one in same if one.state == "up"), None)
    up = [
        one.name
        for one in same
        if one is not declared
        and (view := found.views.get(found.head(one))) is not None
        and view.record(one.name).desired_state == "up"
    ]
    if declared is None or not up:
        return ""
    return (
        f"unit {', '.join(up)} of slot {unit.slot} is up, and rack.yaml has {declared.name} up; `sparkrack serve use "
        f"{declared.name}`, or `sparkrack serve use {up[0]}`, has one of them up, and rack.yaml say so"
    )


def _start_blockers(units: UnitsToChange, unit: ServedUnit) -> list[str]:
    """Return why a unit must not be started: a node of it is absent, or in a run still not as declared."""
    found = units.survey
    if absent := found.absent(unit):
        names = ", ".join(absent)
        what = f"{names} is not in this run, has failed, or cannot be read; run for all nodes of the unit"
        return [f"unit {unit.name} is not started: {what}"]
    if not units.executing:
        return []
    if blockers := found.blockers(unit):
        return blockers
    unready = [
        name
        for name in unit.ranks(found.rack.nodes)
        if found.programs(name) or found.folder_differs(name) or found.differences(unit, name).changes().events
    ]
    if not unready:
        return []
    return [f"unit {unit.name} is not started: it is not installed on {', '.join(unready)}; run again"]


def _desired_state(unit: ServedUnit) -> StringCommand:
    """Return the command that hands the desired state to the coordinator, which may have been started just before."""
    coordinator = f"{COORDINATOR} {desired.path(unit, 'json')}"
    return sudo_script(
        f"export PYTHONDONTWRITEBYTECODE=1; n=0; until {coordinator} status > /dev/null 2>&1; do n=$((n + 1)); "
        f"[ $n -lt {2 * _COORDINATOR_SECONDS} ] || break; sleep 0.5; done; {coordinator} {unit.state}"
    )
