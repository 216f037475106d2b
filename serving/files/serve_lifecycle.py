"""The states of a served unit and what moves it between them: all ranks run, or none. No input or output of its own.

    down ─ up ─> gating ─ all gates passed ─> starting ─ proofs of a start ──> ready <─> busy
                   │ one gate failed             │ a rank ended, a lease expired  │      │ no progress
                   v                             v                                v      v
                  held <──────────────────── stopping <── draining <── asked to ──┘    stuck
                                                └─ all ranks confirmed stopped ─> down, held, or gating again

In draining the ranks go on until no request runs, at most for the time that the unit has for it.
In gating, starting, ready, busy and draining a rank may run or get ready to; in every other state each rank is to stop.
A new generation begins only when every rank has reported that it does not run: one that does not report is not stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import serve_answers
import serve_phases
import serve_rdma
from serve_unit import ServedRank, ServedUnit, ServeError, line

MOST_BESIDE = 8
"""Other units of a node that a report names."""
RUNNING = ("starting", "ready", "busy", "draining")
STATES = ("down", "gating", *RUNNING, "stuck", "held", "stopping")
SERVING = ("ready", "busy")
TRANSITIONS_KEPT = 20


@dataclass
class UnitRecord:
    """What outlives the coordinator. Times are seconds since 1970. `boots`: the boot ID of each rank's node at the
    start of the generation; `unplanned`: the same, once a node ended without a clean shutdown while the unit ran.
    `anyway`: the latest desired state was to start although a node was not as after a boot. `remark`: what its start
    has shown, and rack.yaml allows: that the ranks do not use RDMA. `dimension`: the numbers of each embedding, as the
    first answer with the files of version `dimension_of` had them; 0 of other kinds. `phases`: of the latest start, by
    name `begin` and `seconds`, which is None for a phase that has not ended; one that was not seen is not there.
    """

    name: str
    desired_state: str = "down"
    state: str = "down"
    reason: str = "never started"
    cause: str = "asked"
    generation: int = 0
    since: float = 0.0
    started: float = 0.0
    proven: float = 0.0
    restarts: list[float] = field(default_factory=list)
    boots: list[str] = field(default_factory=list)
    unplanned: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    failed_gates: dict[str, str] = field(default_factory=dict)
    anyway: bool = False
    transitions: list[list[Any]] = field(default_factory=list)
    remark: str = ""
    dimension: int = 0
    dimension_of: str = ""
    phases: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any], name: str) -> UnitRecord:
        """Return a record from its JSON object: of another release it may have a field more, or lack one, which then
        has its default. Raises ServeError when a value is not one of its field.
        """
        kinds = {one.name: type(getattr(cls(name), one.name)) for one in fields(cls)}
        values = {key: value for key, value in values.items() if key in kinds}
        for key, value in values.items():
            if not (_is_number(value) if kinds[key] is float else type(value) is kinds[key]):
                raise ServeError(f"the state file: {line(key)} is {line(repr(value), 80)}")
        record = cls(**{"name": name, **values})
        if not all(_is_number(at) for at in record.restarts):
            raise ServeError("the state file: restarts has a value that is not a time")
        if not all(isinstance(boot, str) for boot in record.boots + record.unplanned):
            raise ServeError("the state file: boots has a value that is not a boot ID")
        if not all(_is_number(value) for value in record.figures.values()):
            raise ServeError("the state file: figures has a value that is not a number")
        if not all(isinstance(reason, str) for reason in record.failed_gates.values()):
            raise ServeError("the state file: failed_gates has a value that is not a text")
        if not serve_phases.valid(record.phases):
            raise ServeError(f"the state file: phases is {line(repr(record.phases), 80)}")
        for one in record.transitions:
            right = isinstance(one, list) and len(one) == 4 and _is_number(one[0])
            if not right or [type(value) for value in one[1:]] != [str, int, str]:
                raise ServeError(f"the state file: transitions has {line(repr(one), 80)}")
        if record.name != name or record.state not in STATES or record.desired_state not in ("up", "down"):
            raise ServeError(
                f"the state file: name {record.name!r}, state {record.state!r}, desired state {record.desired_state!r}"
            )
        return record


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class ClockSkew(NamedTuple):
    """How far the clock of a node is ahead of that of the head: `ahead` seconds, known to within `bound` seconds."""

    ahead: float
    bound: float

    @classmethod
    def of(cls, sent: float, received: float, clock: object) -> ClockSkew:
        """Return it from the times of the head at which it sent its challenge and received the report, and from the
        node's time in between. Raises ServeError when that is not a time.
        """
        if isinstance(clock, bool) or not isinstance(clock, int | float):
            raise ServeError("the report has no valid clock")
        return cls(clock - (sent + received) / 2, abs(received - sent) / 2)


@dataclass(frozen=True)
class AgentReport:
    """The latest message of one agent. `state`: idle, gating, starting, running, stopping, ended or unknown.
    `generation`: that of the rank it started last; None: a rank runs that it did not start. `gate`: generation,
    verdict and reason of its last gate. `clean`: false after a boot of its machine that ended while the rank ran, and
    not in order. `leaving`: its machine shuts down. `kernel`: why the kernel's log forbids another start.
    `skew`: of the clock of its node. `version`: of the unit's files as it read them; empty for an agent that is older
    than versions are, whose reports still count: it must receive the order to stop. `rdma`: the bytes that each RDMA
    device has moved; `network`: what NCCL says that it uses, once it was asked for; `beside`: other units that run
    on its node. `hang`: the cause that evidence shows. `phases`: of its start, by the clock of its node.
    """

    state: str
    generation: int | None
    boot: str
    clean: bool
    leaving: bool
    detail: str
    gate: tuple[int, bool, str] | None
    heard: float
    skew: ClockSkew
    kernel: str
    version: str
    rdma: serve_rdma.Counters = field(default_factory=dict)
    network: str = ""
    hang: str = ""
    beside: tuple[str, ...] = ()
    phases: serve_phases.Times = field(default_factory=dict)

    @classmethod
    def of(cls, message: dict[str, Any], heard: float, skew: ClockSkew) -> AgentReport:
        """Return a report from its message. Raises ServeError when a value has the wrong type."""
        gate = message.get("gate")
        if gate is not None:
            if not (isinstance(gate, list) and [type(one) for one in gate] == [int, bool, str]):
                raise ServeError("the report has no valid gate")
            gate = (gate[0], gate[1], line(gate[2]))
        message = {"version": "", "network": "", "hang": "", **message}
        keys = ("state", "boot", "clean", "leaving", "kernel", "detail", "version", "network", "hang")
        flags = ("clean", "leaving")
        if wrong := [key for key in keys if not isinstance(message.get(key), bool if key in flags else str)]:
            raise ServeError(f"the report has no valid {', '.join(wrong)}")
        generation = message.get("generation")
        if generation is not None and type(generation) is not int:
            raise ServeError("the report has no valid generation")
        return cls(
            message["state"],
            generation,
            message["boot"],
            message["clean"],
            message["leaving"],
            line(message["detail"]),
            gate,
            heard,
            skew,
            line(message["kernel"]),
            message["version"],
            serve_rdma.reported(message.get("rdma", {})),
            line(message["network"], 80),
            line(message["hang"]),
            _check_unit_names(message.get("beside", [])),
            serve_phases.reported(message.get("phases", {})),
        )


def _check_unit_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ServeError("the report has no valid beside")
    return tuple(line(one, 40) for one in value[:MOST_BESIDE])


class UnitLifecycle:
    """The state machine. The caller holds a lock; `now` is the monotonic clock, `clock` the time since 1970.

    Args:
        unit: the declared unit.
        record: the state to go on from.
        save: writes the record; it is called before a changed state has any effect. It may raise OSError.
        now: the time of the start, from which a rank's lease counts until its first report.
    """

    def __init__(
        self,
        unit: ServedUnit,
        record: UnitRecord,
        save: Callable[[dict[str, Any]], None],
        now: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.unit, self.record, self._save, self._clock = unit, record, save, clock
        self.reports: dict[int, AgentReport] = {}
        self.misses = 0
        self.requests: int | None = None
        self.last_probe = f"no {unit.probe.noun} was tried"
        self.unsaved = ""
        self.probe_fault = ""
        self.witness = 0
        """The generation of which each agent is asked what NCCL says that it uses."""
        self._entered = self._created = now
        self._begun: float | None = None
        self._saved_phases: dict[str, dict[str, float | None]] = {}
        self._restarts: dict[float, float] = {}
        self._hangs = False
        """Whether the ranks are stopped because the engine gives no answer: what they show is collected before."""
        self._heard = dict.fromkeys(range(len(unit.ranks)), now)
        self._confirmed = dict(self._heard)

    # What comes in

    def reported(self, rank: int, report: AgentReport) -> dict[str, Any]:
        """Take the report of a rank and return what its agent is to do: gate, run or stop."""
        self.reports[rank] = report
        self._heard[rank] = report.heard
        if report.state == "running" and report.generation == self.record.generation:
            self._confirmed[rank] = report.heard
        self._add_cause(report)
        self._add_phases()
        self.tick(report.heard)
        record = self.record
        current = report.generation == record.generation
        if record.state == "gating" and report.state in ("idle", "gating"):
            order = "gate"
        elif (record.state in RUNNING and current) or (record.state == "starting" and report.state == "idle"):
            order = "run"
        else:
            order = "stop"
        answer: dict[str, Any] = {"order": order, "generation": record.generation}
        if record.anyway:
            answer["anyway"] = True
        if record.state in ("ready", "busy", "draining"):
            answer["loaded"] = True
        if self.witness == record.generation and record.state == "starting":
            answer["witness"] = True
        if self._hangs and current:
            answer["hang"] = True
        return answer

    def _add_cause(self, report: AgentReport) -> None:
        """Add what a rank shows of the cause of a hang to its reason."""
        record = self.record
        if self._hangs and report.hang and report.generation == record.generation and report.hang not in record.reason:
            record.reason = f"{record.reason}; {report.hang}"
            record.transitions[-1][3] = record.reason
            self._store_record()

    def _add_phases(self) -> None:
        """Add what all ranks show of the phases of the start; what was known before stays known."""
        record = self.record
        current = [self.reports.get(rank.number) for rank in self.unit.ranks]
        if record.state not in ("starting", *SERVING):
            return
        found = [(one.phases, one.skew.ahead) for one in current if one and one.generation == record.generation]
        if len(found) < len(self.unit.ranks):
            return
        seen = serve_phases.merged(found)
        if (answer := seen.get("answer")) and answer["begin"] and record.proven:
            # The clock of the engine's node may be ahead by less than is tolerated.
            answer["seconds"] = round(max(0.0, record.proven - answer["begin"]), 1)
        for phase, times in seen.items():
            known, took = record.phases.get(phase, {}).get("seconds"), times["seconds"]
            # A second model opens a phase again. An agent that came back later may find less in its journal.
            if record.state == "starting" or known is None or (took is not None and took > known):
                record.phases[phase] = times
        if record.phases != self._saved_phases:
            self._saved_phases = {name: dict(times) for name, times in record.phases.items()}
            self._store_record()

    def set_desired_state(self, desired_state: str, anyway: bool, now: float) -> tuple[bool, str]:
        """Take the operator's desired state. Return whether it is accepted, and a sentence."""
        record = self.record
        if desired_state == "down":
            if record.state == "down" and record.desired_state == "down" and not self._list_leftover_ranks(now):
                return True, f"unit {record.name} is down already"
            record.desired_state = "down"
            if record.state in ("stopping", "stuck", "draining"):
                self._store_record()
            elif record.state in SERVING and self.unit.times.drain:
                text = f"asked to stop; requests have {self.unit.times.drain:g} s to end"
                self._enter_state("draining", text, now, cause="asked")
                return True, f"unit {record.name} is draining, for at most {self.unit.times.drain:g} s"
            else:
                self._enter_state("stopping", "asked to stop", now, cause="asked")
            return True, f"unit {record.name} is stopping"
        if record.state in ("down", "held"):
            if record.unplanned and not anyway:
                names = [
                    rank.node for rank in self.unit.ranks if not self._machine_restarted(rank.number, record.unplanned)
                ]
                if names:
                    return False, f"{record.reason}; reboot {', '.join(names)}, or use --anyway"
            record.desired_state, record.unplanned, record.restarts, record.anyway = "up", [], [], anyway
            self._begin_gating("asked to start", now)
            return True, f"unit {record.name} is starting: generation {record.generation}"
        record.desired_state, record.restarts = "up", []
        self._store_record()
        return True, f"unit {record.name} is {record.state}"

    def proved(
        self,
        generation: int,
        seconds: float,
        busy: bool,
        now: float,
        *,
        beside: Sequence[str] = (),
        remark: str = "",
        why: str = "counters rise",
        dimension: int = 0,
    ) -> None:
        """Take a right answer, which took so many seconds, or with `busy` a sign of life instead: `why`.

        `beside`: what the start has proven beside it, a clause each; `remark`: what it has shown and rack.yaml allows;
        `dimension`: the numbers of each embedding.
        """
        record = self.record
        if generation != record.generation or record.state not in RUNNING:
            return
        self.misses = 0
        if not busy:
            record.figures[f"{self.unit.probe.noun}_s"] = round(seconds, 3)
        if dimension:
            record.dimension, record.dimension_of = dimension, self.unit.version
        answered = serve_answers.proven_words(self.unit.probe, record.dimension)
        if record.state == "starting":
            if busy or not all(self._rank_runs(rank) for rank in self.unit.ranks):
                return
            record.proven = self._clock()
            record.figures["ready_s"] = round(self._seconds_since_start(now), 1)
            record.remark = remark
            self._enter_serving("ready", ", ".join((answered, *beside)), now)
        elif record.state == "ready" and busy:
            self._enter_serving("busy", why, now)
        elif record.state == "busy" and not busy:
            self._enter_serving("ready", answered, now)

    @property
    def expected_dimension(self) -> int:
        """The numbers that each embedding must have: as declared, or as the first answer had; 0 when none is known."""
        record, declared = self.record, self.unit.probe.dimension
        return declared or (record.dimension if record.dimension_of == self.unit.version else 0)

    def _enter_serving(self, state: str, proven: str, now: float) -> None:
        self._enter_state(state, f"{proven}; remark: {self.record.remark}" if self.record.remark else proven, now)

    def refused(self, generation: int, reason: str, now: float) -> None:
        """Take an answer after a start that another try repeats: garbage, no chat, no RDMA. As many in a row as a unit
        that serves may miss end the start: waiting does not mend it.
        """
        record = self.record
        if generation != record.generation or record.state != "starting":
            return
        self.last_probe = line(reason)
        self.misses += 1
        if self.misses >= self.unit.times.probe_misses:
            self._enter_state("stopping", self.last_probe, now, cause="failed")

    def drained(self, generation: int, requests: int | None, now: float) -> None:
        """Take how many requests the engine has; None when it does not report it. Two times none ends the draining: one
        that was just accepted may not be counted yet.
        """
        if generation != self.record.generation or self.record.state != "draining":
            return
        before, self.requests = self.requests, requests
        if before == requests == 0:
            self._enter_state("stopping", f"asked to stop; no request ran after {now - self._entered:.1f} s", now)

    def missed(self, generation: int, reason: str, now: float) -> None:
        """Take a request that failed while no counter rose. The reason is a clause, such as `no answer in 60 s`."""
        record = self.record
        if generation != record.generation or record.state not in RUNNING:
            return
        self.last_probe = line(reason)
        if record.state == "starting":
            self.misses = 0
            return
        if record.state == "draining":
            return
        self.misses += 1
        if self.misses >= self.unit.times.probe_misses:
            text = f"{self.misses} {self.unit.probe.noun}s in a row failed and no counter rose: {self.last_probe}"
            self._enter_state("stuck", text, now, cause="failed")
            self._hangs = True

    def tick(self, now: float) -> None:
        """Do what the time and the latest reports ask for."""
        record, times = self.record, self.unit.times
        if self.unsaved:
            self._store_record()
        if record.state in RUNNING:
            if failure := self._find_failure(now):
                # A unit that is asked to stop is not started again by an end of its own.
                self._enter_state("stopping", failure, now, cause="asked" if record.state == "draining" else "failed")
            elif record.state == "draining" and now - self._entered >= times.drain:
                left = (
                    "its engine does not report how many ran" if self.requests is None else f"{self.requests} ran still"
                )
                if self.requests == 0:
                    left = "0 ran at the last look"
                self._enter_state("stopping", f"asked to stop; {times.drain:g} s for requests are over, {left}", now)
            elif record.state == "starting" and now - self._entered > times.ready_limit and not self.probe_fault:
                text = f"no correct {self.unit.probe.noun} within {times.ready_limit:g} s: {self.last_probe}"
                self._enter_state("stopping", text, now, cause="failed")
                self._hangs = True
        elif record.state == "gating":
            self._check_gates(now)
        elif record.state in ("stopping", "stuck") and not self.unconfirmed(now):
            self._continue_after_stop(now)

    # What follows from it

    def unconfirmed(self, now: float) -> list[ServedRank]:
        """Return the ranks that are not known to be stopped."""
        return [rank for rank in self.unit.ranks if not (self._is_report_fresh(rank, now) and self._is_rank_idle(rank))]

    def _list_leftover_ranks(self, now: float) -> list[ServedRank]:
        """Return the ranks that report something else than that nothing of them runs, though all were to be stopped."""
        if self.record.state not in ("down", "held"):
            return []
        found = [(rank, self.reports.get(rank.number)) for rank in self.unit.ranks]
        return [
            rank
            for rank, report in found
            if report and self._is_report_fresh(rank, now) and report.state not in ("idle", "gating")
        ]

    def status(self, now: float) -> dict[str, Any]:
        """Return the record, and of each rank what it last reported and how long ago, in seconds. `clock`: the time of
        the answer, in seconds since 1970 as those of the record. `version`: of the files of the unit that is kept.
        `left`: the nodes on which something of a unit that is down or held is left, or may be.
        """
        ranks = []
        for rank in self.unit.ranks:
            report = self.reports.get(rank.number)
            values = {"rank": rank.number, "node": rank.node, "state": "unknown", "generation": None, "age_s": None}
            if report:
                age = round(now - report.heard, 1)
                state = report.state if self._is_report_fresh(rank, now) else "unknown"
                values |= {"state": state, "generation": report.generation, "age_s": age, "detail": report.detail}
            ranks.append(values)
        unconfirmed = [] if self.record.state in RUNNING else [rank.node for rank in self.unconfirmed(now)]
        return {
            **asdict(self.record),
            "clock": round(self._clock(), 3),
            "version": self.unit.version,
            "misses": self.misses,
            "unsaved": self.unsaved,
            "probe_fault": self.probe_fault,
            "ranks": ranks,
            "unconfirmed": unconfirmed,
            "left": [rank.node for rank in self._list_leftover_ranks(now)],
        }

    def _check_gates(self, now: float) -> None:
        self._obey_latest_generation()
        limit = self.unit.times.gate_limit
        verdicts = [(rank, self._gate_verdict(rank, now)) for rank in self.unit.ranks]
        self.record.failed_gates = {rank.node: verdict for rank, verdict in verdicts if verdict}
        failed = [f"gate of {rank}: {verdict}" for rank, verdict in verdicts if verdict]
        open_gates = [rank for rank, verdict in verdicts if verdict is None]
        if self.unsaved:
            failed.append(f"the state file cannot be written: {self.unsaved}")
        if failed:
            self._enter_state("held", "; ".join(failed), now, cause="gate")
        elif not open_gates:
            self._begin_start(now)
        elif now - self._entered > limit:
            states = ", ".join(f"{rank} {self._open_gate_state(rank, now)}" for rank in open_gates)
            self._enter_state("held", f"no verdict of every gate within {limit:g} s: {states}", now, cause="gate")

    def _obey_latest_generation(self) -> None:
        """Take a generation after all that ranks have seen: as after a lost state file, they obey none before it."""
        latest = max((report.generation or 0 for report in self.reports.values()), default=0)
        if latest >= self.record.generation:
            self.record.generation = latest + 1
            self._store_record()

    def _gate_verdict(self, rank: ServedRank, now: float) -> str | None:
        """Return why a rank must not start; empty when it may, None while its gate is open."""
        report = self.reports.get(rank.number)
        if report is None:
            return None
        gate = report.gate if report.gate and report.gate[0] == self.record.generation else None
        if gate and not gate[1]:
            # The gate names its node, for those who run it by hand.
            return gate[2].removeprefix(f"{rank.node}: ") or "failed without a reason"
        if reason := self._wrong_clock(rank, report.skew) or self._wrong_version(report, gate):
            return reason
        passed = gate and self._is_report_fresh(rank, now) and self._is_rank_idle(rank) and self._is_clock_known(report)
        return "" if passed else None

    def _is_clock_known(self, report: AgentReport) -> bool:
        """Return whether a clock is certainly within the limit of the head's."""
        return abs(report.skew.ahead) + report.skew.bound <= self.unit.times.clock_limit

    def _begin_start(self, now: float) -> None:
        """Start the ranks, of which all gates have passed."""
        record = self.record
        record.boots = [self.reports[rank.number].boot for rank in self.unit.ranks]
        record.started, record.proven = self._clock(), 0.0
        record.figures = {"gates_s": round(now - self._entered, 1)}
        begin = record.phases.get("gates", {}).get("begin")
        record.phases = {"gates": {"begin": begin, "seconds": record.figures["gates_s"]}}
        self._begun = now
        self.misses, self.last_probe, record.remark = 0, f"no {self.unit.probe.noun} was tried", ""
        self._enter_state("starting", f"all gates passed{self._join_gate_remarks()}", now)

    def _open_gate_state(self, rank: ServedRank, now: float) -> str:
        """Return in words what keeps a gate open."""
        report = self.reports.get(rank.number)
        if not (report and self._is_report_fresh(rank, now)):
            return f"does not report ({self._name_agent_journal(rank)})"
        if report.gate and not self._is_clock_known(report):
            return f"answers so late that its clock is known to {report.skew.bound:.1f} s only"
        if report.state == "unknown" and report.detail:
            return f"is unknown ({report.detail})"
        return f"is {report.state}"

    def _name_agent_journal(self, rank: ServedRank) -> str:
        """Return where an agent that does not report says why, such as a record that it cannot read."""
        return f"`journalctl -u sparkrack-serve-{self.unit.name}-agent` on {rank.node} may say why"

    def _join_gate_remarks(self) -> str:
        """Return what gates that have passed remark, as the end of a sentence."""
        gates = [(rank, self.reports[rank.number].gate) for rank in self.unit.ranks]
        return "".join(f"; {rank.node}: {gate[2]}" for rank, gate in gates if gate and gate[2])

    def _wrong_version(self, report: AgentReport, gate: tuple[int, bool, str] | None) -> str:
        """Return why a node must not start its rank: its files are not those of the same `apply` as the coordinator's.
        Files that `apply` was writing are refused by the gate, whose reason comes first.
        """
        if gate is None or report.version == self.unit.version:
            return ""
        return "its agent has another version of the unit's files; run `sparkrack apply --only serving`"

    def _wrong_clock(self, rank: ServedRank, skew: ClockSkew) -> str:
        """Return why a node must not start its rank: its clock is certainly further from the head's than the limit."""
        limit, head = self.unit.times.clock_limit, self.unit.ranks[0].node
        if abs(skew.ahead) - skew.bound <= limit:
            return ""
        way = "ahead of" if skew.ahead > 0 else "behind"
        return (
            f"its clock is {abs(skew.ahead):.1f} s {way} that of {head}, at most {limit:g} s are allowed; "
            f"`timedatectl` on {rank.node} and {head} shows which is not synchronized"
        )

    def _find_failure(self, now: float) -> str:
        """Return why the running generation has failed, or nothing. A rank that reports an end explains more than one
        that does not report, and comes first.
        """
        record, lease = self.record, self.unit.times.lease
        ended, lost = [], []
        for rank in self.unit.ranks:
            report = self.reports.get(rank.number)
            if not self._is_report_fresh(rank, now):
                lost.append(str(rank))
            elif report is None:
                continue
            elif record.boots and report.boot != record.boots[rank.number]:
                ended.append(f"the machine of {rank} restarted")
            elif report.state == "ended" and report.generation == record.generation:
                ended.append(f"{rank} ended without being asked to: {report.detail or 'no reason reported'}")
            elif report.state in ("idle", "stopping") and report.generation == record.generation:
                ended.append(f"{rank} stopped: {report.detail or 'no reason reported'}")
            elif report.state in ("starting", "running") and report.generation != record.generation:
                ended.append(f"{rank} runs outside of generation {record.generation}")
            elif record.state == "starting" and report.state == "idle" and now - self._entered > lease:
                # Its agent lost the verdict of its gate, or could not write its record.
                detail = report.gate[2] if report.gate and not report.gate[1] else ""
                ended.append(f"{rank} did not start within {lease:g} s{f': {detail}' if detail else ''}")
            elif record.state != "starting" and now - max(self._confirmed[rank.number], self._entered) > lease:
                ended.append(f"{rank} is {report.state} for more than {lease:g} s")
        if lost:
            ended.append(f"no report from {', '.join(lost)} for {lease:g} s")
        return "; ".join(ended)

    def _continue_after_stop(self, now: float) -> None:
        """Every rank is confirmed stopped: decide what comes next."""
        record, budget = self.record, self.unit.restart
        reason = record.reason
        rebooted = [
            rank for rank in self.unit.ranks if record.boots and self._machine_restarted(rank.number, record.boots)
        ]
        unclean = [rank.node for rank in rebooted if not self.reports[rank.number].clean]
        if unclean:
            record.unplanned = record.boots
            reason = f"{', '.join(unclean)} ended without a clean shutdown while the unit ran"
        if record.desired_state == "down":
            self._enter_state("down", reason, now)
        elif unclean:
            self._enter_state("held", reason, now, cause="machine")
        elif record.cause == "asked":
            self._begin_gating("asked to start", now)
        elif rebooted:
            names = ", ".join(rank.node for rank in rebooted)
            if self.unit.boot == "start":
                self._begin_gating(f"{names} rebooted after a clean shutdown", now)
            else:
                self._enter_state("held", f"{names} rebooted, and boot is hold", now, cause="machine")
        elif kernel := [
            f"{rank.node}: {self.reports[rank.number].kernel}"
            for rank in self.unit.ranks
            if self.reports[rank.number].kernel
        ]:
            self._enter_state("held", f"{reason}; not restarted: {'; '.join(kernel)}", now)
        elif not record.proven:
            self._enter_state("held", f"{reason}; not restarted: it was never ready", now)
        elif self._seconds_since_start(self._entered) < budget.uptime:
            text = f"{reason}; not restarted: it ended within {budget.uptime:g} s of its start"
            self._enter_state("held", text, now)
        else:
            clock = self._clock()
            record.restarts = [at for at in record.restarts if 0 <= self._restart_age(at, now) < budget.within]
            if len(record.restarts) >= budget.times:
                text = f"{reason}; not restarted: {len(record.restarts)} restarts within {budget.within:g} s"
                self._enter_state("held", text, now)
            else:
                record.restarts.append(clock)
                self._restarts[clock] = now
                self._begin_gating(f"restart {len(record.restarts)} of {budget.times}: {reason}", now)

    def _seconds_since_start(self, until: float) -> float:
        """Return the seconds from the start of the ranks to `until` of the monotonic clock. Where this coordinator did
        not start them, the clock of the day tells, and they ran for at least as long as this coordinator.
        """
        if self._begun is not None:
            return until - self._begun
        ended = self._clock() if self.record.state in RUNNING else self.record.since
        return max(ended - self.record.started, until - self._created)

    def _restart_age(self, at: float, now: float) -> float:
        """Return the seconds since a restart, below 0 for one in the future: the clock was set back since an earlier
        coordinator made it. Those of this coordinator count by the monotonic clock.
        """
        return now - self._restarts[at] if at in self._restarts else self._clock() - at

    def _begin_gating(self, reason: str, now: float) -> None:
        self.record.generation += 1
        self.record.boots, self.record.failed_gates = [], {}
        self.record.phases = {"gates": {"begin": round(self._clock(), 3), "seconds": None}}
        self._enter_state("gating", reason, now, cause="failed")

    def _enter_state(self, state: str, reason: str, now: float, cause: str = "") -> None:
        record = self.record
        # From ready to busy and back a unit goes each minute, which would push the reason of a failure out.
        kept = not (record.state in SERVING and state in SERVING)
        record.state, record.reason, record.since = state, reason, self._clock()
        self.requests, self._hangs = None, False
        if state not in RUNNING:
            self.probe_fault = ""
        record.cause = cause or record.cause
        if kept:
            record.transitions = [
                *record.transitions[1 - TRANSITIONS_KEPT :],
                [round(record.since, 3), state, record.generation, reason],
            ]
        self._entered = now
        self._store_record()

    def _store_record(self) -> None:
        """Save the record. A running unit outlives a full disk; no generation starts until the record is saved."""
        try:
            self._save(asdict(self.record))
        except OSError as error:
            self.unsaved = error.strerror or str(error)
        else:
            self.unsaved = ""

    def _is_report_fresh(self, rank: ServedRank, now: float) -> bool:
        return now - self._heard[rank.number] <= self.unit.times.lease

    def _is_rank_idle(self, rank: ServedRank) -> bool:
        report = self.reports.get(rank.number)
        return bool(report and report.state == "idle" and not report.leaving)

    def _rank_runs(self, rank: ServedRank) -> bool:
        report = self.reports.get(rank.number)
        return bool(report and report.state == "running" and report.generation == self.record.generation)

    def _machine_restarted(self, rank: int, boots: list[str]) -> bool:
        """Return whether the rank's machine reports another boot ID than then."""
        report = self.reports.get(rank)
        return bool(report and report.boot != boots[rank])
