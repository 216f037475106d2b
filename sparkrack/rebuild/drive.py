"""How a rebuild goes: phase after phase, each noted before it is begun and after it has ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparkrack.fleet import Rack
from sparkrack.fleet.errors import one_line
from sparkrack.rebuild import restarts, steps
from sparkrack.rebuild.child import Caller, CutOffError, Ended
from sparkrack.rebuild.journal import Called, Entered, Journal, Left, Past, PhaseResult, Resumed, Returned
from sparkrack.rebuild.journal import Ended as EndLine
from sparkrack.rebuild.model import Outcome, Phase, PhaseReport, Request, phases
from sparkrack.rebuild.service import Service, Standing, refusals
from sparkrack.rebuild.waiting import Door, wait

PAUSE = 5.0
"""Seconds between two questions to a node that restarts."""


class StoppedError(Exception):
    """A phase did not end well. The text says why."""


@dataclass(frozen=True)
class Surroundings:
    """What a rebuild needs from outside. `load`: the rack as its file is now. `look`: how nodes stand to us, asked now.
    `works`: whether a switch already takes our login over its pinned certificate, at its declared address.
    `doors`: where each machine may answer. `patience`: seconds to wait for them. `say`: a line for a person."""

    load: Callable[[], Rack]
    look: Callable[[Sequence[str]], dict[str, Service]]
    works: Callable[[str], bool]
    doors: Callable[[], dict[str, tuple[Door, ...]]]
    patience: float
    say: Callable[[str], None]


@dataclass
class Rebuild:
    """One rebuild. `containers`: nodes whose containers may end. `past`: what an earlier process noted of it."""

    request: Request
    passing: steps.Passing
    containers: frozenset[str]
    around: Surroundings
    caller: Caller
    journal: Journal
    past: Past | None
    restarted: list[str] = field(init=False)
    reports: dict[Phase, PhaseReport] = field(init=False)

    def __post_init__(self) -> None:
        past = self.past
        self.restarted = list(past.restarted) if past else []
        self.reports = {phase: _before(past, phase) for phase in phases(self.request)}

    @property
    def next(self) -> Phase | None:
        """The phase to begin, or to go on with; None when all are done."""
        return next((phase for phase, told in self.reports.items() if told.result != "done"), None)

    def run(self, who: str) -> PhaseResult:
        """Go through the phases that are left; how it ended. Raises OSError when the journal cannot be written."""
        if self.past is not None and self.next is not None:
            self.journal.write(Resumed(run=self.journal.run, who=who, phase=self.next))
        result: PhaseResult = "done"
        while result == "done" and (phase := self.next) is not None:
            result = self._phase(phase)
        self.journal.write(EndLine(run=self.journal.run, result=result))
        return result

    def _phase(self, phase: Phase) -> PhaseResult:
        place = f"[{list(self.reports).index(phase) + 1}/{len(self.reports)}] {phase}"
        self.around.say(f"{place}: {self.request.title}")
        self.journal.write(Entered(run=self.journal.run, phase=phase))
        begin = time.monotonic()
        result: PhaseResult = "done"
        why = ""
        try:
            self.caller.check()
            getattr(self, f"_{phase}")()
        except StoppedError as stopped:
            result, why = "failed", str(stopped)
        except CutOffError:
            result, why = "cut off", "somebody ended it"
        seconds = time.monotonic() - begin
        self.journal.write(Left(run=self.journal.run, phase=phase, result=result, seconds=round(seconds, 1), why=why))
        before = self.reports[phase]
        self.reports[phase] = PhaseReport(
            phase=phase,
            result=result,
            seconds=round(before.seconds + seconds, 1),
            tries=before.tries + 1,
            why=why,
        )
        self.around.say(f"{place}: {result}, {seconds:.1f} s{': ' + why if why else ''}")
        return result

    def _wait(self) -> None:
        missing = wait(self.around.doors(), self.around.patience, self.around.say, self.caller.check)
        if missing:
            names = ", ".join(missing)
            raise StoppedError(
                f"{names}: no answer within {self.around.patience:g} s; look at power, cable and address"
            )

    def _bootstrap(self) -> None:
        self._guard()
        if self.request.nodes:
            self._call(steps.bootstrap_nodes(self.request, self.passing))
        for name in self.request.switches:
            # One that this rebuild has begun with is gone through again: a login alone does not say that it was all.
            if not self._begun(name) and self.around.works(name):
                self.around.say(f"{name}: takes our login over the pinned certificate; no first contact is needed")
                continue
            self._call(steps.bootstrap_switch(self.request, self.passing, name))

    def _apply(self) -> None:
        self._guard(ready=True)
        for words in steps.apply(self.request, self.around.load()):
            self._call(words)

    def _reboot(self) -> None:
        wanted = self._asking_for_a_restart()
        for name, why in wanted.items():
            if name in self.restarted:
                self.around.say(f"{name}: was restarted already and still asks for it: {one_line(why)}; left to verify")
                continue
            self.around.say(f"{name}: is to be restarted: {one_line(why)}")
            self._call(steps.reboot(self.request, name, name in self.containers), machine=name)
            self.restarted.append(name)
        if not wanted:
            self.around.say("no node asks for a restart")

    def _asking_for_a_restart(self) -> dict[str, str]:
        """The nodes that ask for it, and why. One that an earlier process has sent down may be on its way up."""
        rack = self.around.load()
        driver = rack.driver is not None and rack.keeps("driver")
        patience = self.around.patience if self.past is not None and self.past.tries(Phase.REBOOT) else 0
        until = time.monotonic() + patience
        while True:
            answers = [self._call(words, keep=True).said for words in restarts.questions(self.request, driver)]
            try:
                return restarts.reasons(self.request.nodes, answers[0], answers[1] if driver else None)
            except restarts.UntoldError as untold:
                if time.monotonic() > until:
                    raise StoppedError(str(untold)) from None
            self.around.say("a node may still be on its way up; asking again")
            time.sleep(PAUSE)

    def _verify(self) -> None:
        for words in steps.verify(self.request, self.around.load()):
            self._call(words)

    def _begun(self, switch: str) -> bool:
        return self.past is not None and self.past.called("bootstrap", "switch", switch)

    def _guard(self, *, ready: bool = False) -> None:
        """Raises StoppedError when a node runs what must not end."""
        found = self.around.look(steps.behind(self.around.load(), self.request))
        why = refusals(found, self.request.nodes, self.containers, ready=ready)
        if why:
            raise StoppedError("\n".join(why))

    def _call(self, words: Sequence[str], *, keep: bool = False, machine: str | None = None) -> Ended:
        """Call a verb. Raises StoppedError unless it ends well; what is kept is judged by its content instead."""
        self.journal.write(Called(run=self.journal.run, words=tuple(words)))
        if not keep:
            self.around.say(f"  sparkrack {shlex.join(words)}")
        done = self.caller.call(words, keep=keep)
        self.journal.write(
            Returned(run=self.journal.run, exit=done.exit, seconds=round(done.seconds, 1), machine=machine)
        )
        self.caller.check()
        # 2: done with a warning, which the verb has shown; see `sparkrack bootstrap switch --help`.
        if done.exit not in ((0, 2) if words[0] == "bootstrap" else (0,)) and not keep:
            how = f"was ended by signal {-done.exit}" if done.exit < 0 else f"ended with {done.exit}"
            raise StoppedError(f"sparkrack {' '.join(words[: 2 if words[0] == 'bootstrap' else 1])} {how}")
        return done


def standing(found: dict[str, Service]) -> list[str]:
    """What is worth telling of nodes that are not at work, a line each."""
    quiet = (Standing.NOT_OURS, Standing.AWAY)
    return [
        f"{name}: {service.standing.value} ({service.why})"
        for name, service in found.items()
        if service.standing in quiet
    ]


def _before(past: Past | None, phase: Phase) -> PhaseReport:
    """A phase as an earlier process left it."""
    if past is None:
        return PhaseReport(phase=phase, result="not reached", seconds=0, tries=0)
    result: Outcome = "done" if phase in past.done else "cut off" if past.tries(phase) else "not reached"
    return PhaseReport(phase=phase, result=result, seconds=past.seconds(phase), tries=past.tries(phase))
