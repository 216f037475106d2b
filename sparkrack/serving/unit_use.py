"""`sparkrack serve use UNIT`: another unit of a slot is up, or the former one again.

rack.yaml changes last, when a completion has proven the unit: a run that is killed earlier leaves a rack that
`serve status` and `drift` report as not as declared, and the same command continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.model import ConfigError, Rack, load, yaml_editor
from core.model.errors import Path as Place
from core.ssh.node_shells import open_shells
from core.util.command_error import CommandError
from core.util.screen import Screen
from serving.options import ServedUnit, select_unit, served_units
from serving.run_inventory import away
from sparkrack.engine.ssh_locking import ANSWER_SECONDS
from sparkrack.serving.coordinator import (
    SERVING,
    STOPPED,
    CoordinatorError,
    CoordinatorStatus,
    UnitAbsentError,
    UnitCoordinator,
    ask_coordinators,
)
from sparkrack.serving.unit_gateway import UnitGateway, gateway_node
from sparkrack.serving.unit_run import ServeRun, UnitRun, UnitSession, hold_rack

Answers = Mapping[str, CoordinatorStatus | CoordinatorError]


@dataclass(frozen=True)
class SlotState:
    """What the units of a slot are now. `running`: those of which a rank runs or may, but for the unit to use;
    `former`: those that are started again if it does not come."""

    used: CoordinatorStatus
    running: tuple[ServedUnit, ...]
    former: tuple[ServedUnit, ...]
    figures: Mapping[str, Mapping[str, float]]


class UnitUse:
    """One such command. `work`: the run of the unit, which has the next step."""

    def __init__(self, file: Path, name: str, screen: Screen, anyway: bool, timeout: int | None) -> None:
        """Raises CommandError for a name that is not a unit of a slot, before any connection."""
        self.file, self._screen = file, screen
        self._start = anyway, timeout
        self.rack: Rack = load(file)
        self.unit: ServedUnit = select_unit(self.rack, name)
        if self.unit.slot is None:
            raise CommandError(f"unit {name} has no slot; `sparkrack serve start {name}` starts it")
        self.others = tuple(
            one for one in served_units(self.rack).values() if one.slot == self.unit.slot and one.name != name
        )
        self.work = UnitRun(file, name, screen)

    def changes(self) -> list[tuple[Place, str]]:
        """Return what changes in rack.yaml, in this order: at no time two units of the slot are to be up."""
        down = [(_place_of_state(one), "down") for one in self.others if one.state == "up"]
        return down if self.unit.state == "up" else [*down, (_place_of_state(self.unit), "up")]

    def inquire(self) -> SlotState:
        """Ask the coordinators of the slot. Raises CommandError where it is unknown what runs."""
        return self._judge_answers(ask_coordinators(self.rack, (self.unit, *self.others)))

    def _judge_answers(self, answers: Answers) -> SlotState:
        for name, answer in answers.items():
            if isinstance(answer, UnitAbsentError) and name == self.unit.name:
                raise CommandError(f"{answer}; nothing was changed")
            if isinstance(answer, CoordinatorError) and not isinstance(answer, UnitAbsentError):
                raise CommandError(f"unit {name} of slot {self.unit.slot} is unknown: {answer}; nothing was changed")
        known = {name: answer for name, answer in answers.items() if isinstance(answer, CoordinatorStatus)}
        running = tuple(
            one
            for one in self.others
            if one.name in known and (known[one.name].state not in STOPPED or known[one.name].desired_state == "up")
        )
        serving = tuple(one for one in running if known[one.name].state in SERVING)
        declared = tuple(one for one in self.others if one.state == "up" and one.name in known)
        figures = {name: answer.figures for name, answer in known.items()}
        return SlotState(known[self.unit.name], running, (serving or declared)[:1], figures)

    def plan(self, found: SlotState) -> Iterator[str]:
        """Yield what will be done, a line each: nothing where all is as it must be."""
        if found.used.state in SERVING and not found.running and not self.changes():
            return
        yield f"use unit {self.unit.name} of slot {self.unit.slot}"
        for one in found.running:
            nodes = ", ".join(one.ranks(self.rack.nodes))
            yield f"  {one.name}: its requests end within {one.drain}, then it is stopped on {nodes}, and stays down"
        if found.used.state in SERVING:
            yield f"  {self.unit.name}: is {found.used.state} already"
        else:
            nodes = ", ".join(self.unit.ranks(self.rack.nodes))
            took = away(found.figures[self.unit.name])
            yield f"  {self.unit.name}: is started on {nodes}; until then the slot is {took}"
            for one in found.former:
                yield f"  if it does not come, {one.name} is started again: {away(found.figures[one.name])}"
        for place, state in self.changes():
            yield f"  {self.rack.source.name}: {'.'.join(map(str, place))}: {state}, when {self.unit.name} is proven"

    def check_file(self) -> None:
        """Raise ConfigError where rack.yaml cannot be changed: before anything is stopped."""
        snapshot = yaml_editor.snapshot(self.file)
        for place, state in self.changes():
            snapshot = snapshot.changed(place, state)

    def run(self, planned: SlotState) -> bool:
        """Return whether the unit is up, proven, and the one that rack.yaml has up. Raises CommandError."""
        units = (self.unit, *self.others)
        nodes = {node for one in units for node in one.ranks(self.rack.nodes)}
        at = gateway_node(self.rack)
        with hold_rack(self.rack, "use", self.unit, self._screen, self.others) as held:
            now = self.inquire()
            if now.running != planned.running:
                names = ", ".join(one.name for one in now.running) or "none"
                raise CommandError(f"other units of slot {self.unit.slot} run than were shown: {names}; run it again")
            held.screen.phase(f"use unit {self.unit.name}", nodes)
            with open_shells(self.rack, {*nodes, at} if at else nodes, ANSWER_SECONDS) as shells:
                sessions = {}
                for one in units:
                    gateway = UnitGateway(one, at, shells[at]) if at else None
                    coordinator = UnitCoordinator(self.rack, one, shells[one.ranks(self.rack.nodes)[0]])
                    sessions[one.name] = UnitSession(coordinator, held, shells, gateway)
                try:
                    return self._change_units(held, now, sessions)
                except CoordinatorError as fault:
                    held.run.fail(self.unit.name, str(fault))
                    self.work.then = ["status"]
                    raise CommandError(f"{fault}; {self._describe_continuation()}") from None

    def _change_units(self, held: ServeRun, now: SlotState, sessions: Mapping[str, UnitSession]) -> bool:
        for one in now.running:
            if not self._stop_unit(one, sessions[one.name]):
                self.work.then = ["status"]
                held.screen.warn(f"{self.unit.name}: is not started, because {one.name} is not stopped")
                return False
        own = sessions[self.unit.name]
        if not self.work.start(*self._start)(own):
            last = self.work.last
            if last is not None and last.state not in STOPPED:
                self.work.then, self.work.reason = ["use", self.unit.name], "continues"
                return False  # the wait was ended, and the coordinator continues
            return self._go_back(now, sessions)
        own.check()
        return self._declare_states(own)

    def _stop_unit(self, unit: ServedUnit, session: UnitSession) -> bool:
        return UnitRun(self.file, unit.name, self._screen).stop(session)

    def _declare_states(self, session: UnitSession) -> bool:
        """Write into rack.yaml what is so."""
        try:
            snapshot = yaml_editor.snapshot(self.file)
            for place, state in self.changes():
                snapshot = snapshot.put(place, state)
                session.screen.say(f"{self.rack.source.name}: {'.'.join(map(str, place))}: {state}")
        except ConfigError as fault:
            session.fail(f"is up, and rack.yaml does not say so: {fault}")
            self.work.then, self.work.reason = ["use", self.unit.name], "writes it"
            return False
        self.work.then = ["status"]
        return True

    def _go_back(self, now: SlotState, sessions: Mapping[str, UnitSession]) -> bool:
        """Start the former unit again. Never returns True: the unit to use has failed."""
        own = sessions[self.unit.name]
        reason = own.failure
        self.work.then, self.work.reason = ["logs", self.unit.name], ""
        own.check()
        # Held, it would be started by its coordinator after a boot, where rack.yaml has boot: start.
        if not self.work.stop(own):
            return False
        self.work.then, self.work.reason = ["logs", self.unit.name], ""
        if not now.former:
            own.fail(f"does not serve ({reason}), and no unit of slot {self.unit.slot} was up before")
            return False
        (former,) = now.former
        session = sessions[former.name]
        session.screen.say(f"{self.unit.name}: does not serve; goes back to {former.name}")
        if UnitRun(self.file, former.name, self._screen).start(False, None)(session):
            own.fail(f"does not serve ({reason}); {former.name} serves again, and rack.yaml is as it was")
        else:
            own.fail(f"does not serve ({reason}), and {former.name} does not either ({session.failure})")
            self.work.then = ["logs", former.name]
        return False

    def _describe_continuation(self) -> str:
        return f"`sparkrack serve status` shows where it stands, `sparkrack serve use {self.unit.name}` continues"


def _place_of_state(unit: ServedUnit) -> Place:
    return ("serving", "units", unit.name, "state")
