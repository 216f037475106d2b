"""The coordinator of a served unit, asked over ssh on the head of the unit: to start or stop it, and for its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from shlex import join
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.records import Text
from core.util.scrub import scrub
from serving import desired
from serving.options import ServedUnit
from serving.programs import COORDINATOR

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0
"""Seconds for a head to be reached, and to answer, where the coordinators of several heads are asked."""
ABSENT = 66
"""Exit code of the script on a head that has no file of the unit."""
_FAULT = "serve-coordinator: "
"""Begins a message of the program about itself; a refusal of the coordinator has no such beginning."""

UnitState = Literal["down", "gating", "starting", "ready", "busy", "draining", "stuck", "held", "stopping"]
"""States of a unit, as serving/files/serve_lifecycle.py has them."""
SERVING: frozenset[str] = frozenset({"ready", "busy"})
"""States in which a completion has proven the unit."""
STOPPED: frozenset[str] = frozenset({"down", "held"})
"""States in which every rank has reported that it does not run."""


class CoordinatorError(Exception):
    """The coordinator gave no usable answer. The text is one printable sentence that names the head."""


class UnitAbsentError(CoordinatorError):
    """The head has no file of the unit."""


class DesiredStateRefusedError(CoordinatorError):
    """The coordinator does not accept the desired state."""


class _Answer(BaseModel):
    """A part of an answer. Fields that are not known are ignored: the coordinator may be of a later version."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CoordinatorRank(_Answer):
    """A rank as its agent last reported it, `age_s` seconds ago; None: it has not reported yet."""

    rank: int
    node: Text
    state: Text
    age_s: float | None
    detail: Text = ""


class CoordinatorTransition(NamedTuple):
    """One change of the state. `at`: seconds since 1970, by the clock of the head."""

    at: float
    state: Text
    generation: int
    reason: Text


class CoordinatorPhase(_Answer):
    """A phase of the latest start. `begin`: seconds since 1970; `seconds`: None for one that has not ended."""

    begin: Annotated[float, Field(ge=0, lt=1e11)] | None
    seconds: Annotated[float, Field(ge=0)] | None


class CoordinatorStatus(_Answer):
    """What `serve_coordinator.py status` prints. Times are seconds since 1970, by the clock of the head.

    `probe_fault`: why the engine cannot be asked; nothing of an older coordinator.
    `version`: of the unit's files as the coordinator has read them; None for a coordinator that is older than versions
    are.
    `left`: the nodes on which something of a unit that is down or held is left, or may be.
    `previous`: the generation whose files `recreate` has put back, 0 when it is unknown which, None for no previous
    ones. `phases`: of the latest start, those that were seen; none of an older coordinator.
    """

    name: Text
    desired_state: Literal["up", "down"]
    state: UnitState
    reason: Text
    generation: int
    since: float
    restarts: tuple[float, ...]
    figures: Mapping[str, float]
    failed_gates: Mapping[str, Text]
    transitions: tuple[CoordinatorTransition, ...]
    clock: float
    unsaved: Text
    ranks: tuple[CoordinatorRank, ...]
    unconfirmed: tuple[Text, ...]
    probe_fault: Text = ""
    left: tuple[Text, ...] = ()
    version: Text | None = None
    previous: int | None = None
    cause: Text = ""
    phases: Mapping[str, CoordinatorPhase] = Field(default_factory=dict)


class UnitCoordinator:
    """The coordinator of one unit, behind a root shell on the head of the unit."""

    def __init__(self, rack: Rack, unit: ServedUnit, shell: RootShell) -> None:
        self.unit = unit
        self.nodes = unit.ranks(rack.nodes)
        self.head = self.nodes[0]
        self._shell = shell

    def up(self, *, anyway: bool) -> str:
        """DesiredState the unit up; return the answer, a sentence. `anyway`: also after an unplanned end of a machine.

        Raises DesiredStateRefusedError, CoordinatorError.
        """
        return printable_line(self._run_question("up", *(["--anyway"] if anyway else [])).strip())

    def down(self) -> str:
        """DesiredState the unit down; return the answer, a sentence. Raises DesiredStateRefusedError,
        CoordinatorError."""
        return printable_line(self._run_question("down").strip())

    def status(self) -> CoordinatorStatus:
        """Return the state of the unit. Raises CoordinatorError."""
        return parse_status(self.unit, self.head, self._run_question("status"))

    def _run_question(self, *words: str) -> str:
        try:
            done = self._shell.run(question(self.unit, *words))
        except (OSError, UnreachableError) as error:
            why = getattr(error, "why", None) or getattr(error, "strerror", None) or str(error)
            raise CoordinatorError(printable_line(scrub(f"{self.head}: cannot be asked: {why}"))) from None
        output, complaint = (
            bytes(raw).decode(errors="backslashreplace") for raw in (done.stdout_bytes, done.stderr_bytes)
        )
        if done.rc == 0:
            return output
        raise _make_error(self.unit, self.head, done.rc, complaint)


def question(unit: ServedUnit, *words: str, limit: int = 0) -> str:
    """Return the script that runs the coordinator's program on the head of a unit. `limit`: seconds; 0 for none. It
    does not replace its shell, which in a probe prints the exit code.
    """
    path = desired.path(unit, "json")
    timeout = ["timeout", str(limit)] if limit else []
    return f"[ -e {COORDINATOR} ] && [ -e {path} ] || exit {ABSENT}; {join([*timeout, COORDINATOR, path, *words])}"


def parse_status(unit: ServedUnit, head: str, output: str) -> CoordinatorStatus:
    """Return the state of a unit from the output of `status`. Raises CoordinatorError when it is none."""
    try:
        status = CoordinatorStatus.model_validate_json(output)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = printable_line(f"{place}: {first['msg']}" if place else first["msg"])
        raise CoordinatorError(f"{head}: the answer of the coordinator cannot be read: {reason}") from None
    if status.name != unit.name:
        other = printable_line(status.name)
        raise CoordinatorError(f"{head}: the coordinator of unit {unit.name} answers about unit {other}")
    return status


def as_desired(unit: ServedUnit, state: str) -> bool:
    """Return whether a state is the one that rack.yaml declares: proven by a completion, or every rank stopped."""
    return state in (SERVING if unit.state == "up" else STOPPED)


def _make_error(unit: ServedUnit, head: str, code: int, complaint: str) -> CoordinatorError:
    """Return the error for an exit code of the script that is not 0."""
    if code == ABSENT:
        return UnitAbsentError(f"{head}: has no files of unit {unit.name}; run `sparkrack apply`")
    lines = complaint.strip().splitlines() or [f"the coordinator's program ended with exit {code}"]
    text = printable_line(scrub(lines[-1]))
    if code == 1 and not text.startswith(_FAULT) and len(lines) == 1:
        return DesiredStateRefusedError(f"{head}: {text}")
    service = desired.service_name(unit, "-coordinator")
    return CoordinatorError(f"{head}: {text.removeprefix(_FAULT)}; see `systemctl status {service}` there")


def ask_coordinators(
    rack: Rack, units: Iterable[ServedUnit], progress: ProgressObserver = NO_PROGRESS
) -> dict[str, CoordinatorStatus | CoordinatorError]:
    """Return by the name of each unit what its coordinator answers, or why there is no answer. Heads are asked at
    once."""

    def head(unit: ServedUnit) -> str:
        return unit.ranks(rack.nodes)[0]

    groups = {name: list(same) for name, same in groupby(sorted(units, key=head), key=head)}
    progress.phase("ask the coordinators", groups)
    with ThreadPoolExecutor(max_workers=max(1, len(groups))) as pool:
        answers = pool.map(lambda name: _ask_head(rack, name, groups[name], progress), groups)
    return {name: answer for found in answers for name, answer in found.items()}


def _ask_head(
    rack: Rack, head: str, units: list[ServedUnit], progress: ProgressObserver
) -> dict[str, CoordinatorStatus | CoordinatorError]:
    found: dict[str, CoordinatorStatus | CoordinatorError] = {}
    # Opened and closed in the head's own thread: an absent head must not delay the others.
    with open_shells(rack, [head], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
        for unit in units:
            try:
                found[unit.name] = UnitCoordinator(rack, unit, shells[head]).status()
            except CoordinatorError as error:
                found[unit.name] = error
    progress.finish(
        head, "no answer" if any(isinstance(one, CoordinatorError) for one in found.values()) else "answered"
    )
    return found
