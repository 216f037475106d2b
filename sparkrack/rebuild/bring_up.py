"""`sparkrack up`: the phases of a rebuild for a whole rack, with one question after one plan. What runs goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from core.model import Rack
from core.util import regular_file
from core.util.command_error import DeclinedError
from roles.driver.options import DriverOptions
from sparkrack.engine.plan import Plan
from sparkrack.engine.subcommands import CommandResult
from sparkrack.rebuild import phase_commands, reboot_reasons
from sparkrack.rebuild.model import Phase, Request
from sparkrack.rebuild.runner import Rebuild, RebuildStoppedError

QUESTION = "Bring the rack up?"
_SERVES = ("ready", "busy")
_LARGEST_PLAN = 64 * 1024 * 1024
_RunCommand = Callable[[Sequence[str], bool], CommandResult]
"""Runs a command; the second argument tells whether its stdout is kept."""


@dataclass(frozen=True)
class PendingWork:
    """What is left to do on a rack. `changes`: whether the plan has any. `restarts`: the nodes that ask for a restart
    now, and why. `units`: those that do not serve yet.
    """

    changes: bool
    restarts: Mapping[str, str]
    units: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The same in words, a line each."""
        return (
            *(("apply this plan",) if self.changes else ()),
            *(f"restart {name}: {reason}" for name, reason in self.restarts.items()),
            *(f"start unit {name}, and wait until an answer has proven it" for name in self.units),
        )


def read_pending(
    rack: Rack, request: Request, run: _RunCommand, plan_file: Path, *, quiet: bool = False
) -> PendingWork | None:
    """Plan, keep the plan in `plan_file`, and ask what else is left to do; None when the plan cannot be carried out.

    `quiet`: print the last line of the plan only.
    """
    planned = run(phase_commands.plan(request, plan_file, quiet=quiet), False)
    if planned.exit not in (0, 2):
        return None
    try:
        kept = regular_file.read_bytes(plan_file, _LARGEST_PLAN)
        plan = Plan.model_validate_json(kept)
    except (OSError, ValidationError):
        return None
    status = run(reboot_reasons.questions(request, driver=False)[0], True).output
    driver = rack.declared(DriverOptions) is not None and rack.keeps("driver")
    try:
        restarts = reboot_reasons.reasons(request.nodes, status, kept if driver else None)
    except reboot_reasons.ReasonUnknownError:
        restarts = {}  # the phase reboot asks again
    units = request.units
    if units:
        serving = _serving_units(run(phase_commands.serve_status(request), True).output)
        units = tuple(name for name in units if name not in serving)
    return PendingWork(plan.code == 2, restarts, units)


def _serving_units(output: bytes) -> set[str]:
    """The units that serve, from the JSON of `serve status`; none where it is unknown: `serve start` finds them."""
    try:
        return {str(unit["unit"]) for unit in json.loads(output)["units"] if unit["state"] in _SERVES}
    except (ValueError, KeyError, TypeError):
        return set()


@dataclass
class BringUp(Rebuild):
    """A rebuild of the whole rack that leaves what runs alone: each command refuses by itself what would end it.

    `ask`: asks before the first change, and raises DeclinedError; None asks nothing.
    """

    ask: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        """Repeat everything after the first contact: since it was done the rack file may have changed, and where it has
        not, each command finds nothing to do.
        """
        super().__post_init__()
        for phase, report in self.reports.items():
            if phase not in (Phase.WAIT, Phase.BOOTSTRAP) and report.result == "done":
                self.reports[phase] = report.model_copy(update={"result": "not reached"})

    def _stop_running_units(self, *, ready: bool = False) -> None:
        """Stop nothing: a node that is ready is not changed by bootstrap, and apply refuses a change under a unit."""

    def _run_apply(self) -> None:
        plan_file = self.journal.path.with_suffix(".plan")
        try:
            pending = read_pending(self.around.load(), self.request, self._run_any, plan_file)
            if pending is None:
                raise RebuildStoppedError("the plan cannot be carried out")
            if not pending.lines:
                self.around.say("nothing to apply, to restart or to start")
                return
            self._ask_about(pending)
            if pending.changes:
                self._call_command(("apply", str(plan_file), "--rack", self.request.file))
        finally:
            plan_file.unlink(missing_ok=True)

    def _ask_about(self, pending: PendingWork) -> None:
        for line in ("then, in this order:", *(f"  {line}" for line in pending.lines), "  verify"):
            self.around.say(line)
        self.around.say(
            "a node that asks for a restart after that is restarted, too, one after the other; units on it stop first"
        )
        if self.ask is None:
            return
        try:
            with self.around.hidden(), self.caller.asking():
                self.ask(QUESTION)
        except (DeclinedError, KeyboardInterrupt):
            raise RebuildStoppedError("declined; nothing of this plan was done") from None

    def _run_verify(self) -> None:
        for words in phase_commands.verify(self.request, self.around.load()):
            self._call_command((*words, "--quiet"))

    def _run_any(self, words: Sequence[str], keep: bool) -> CommandResult:
        # The exit code is part of the answer.
        return self._call_command(words, keep=keep, fine=(1, 2))
