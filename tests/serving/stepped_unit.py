"""A unit whose state machine is stepped by a test, with a clock of its own and ranks that report as the test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.serving.serve_modules import serve_lifecycle, serve_unit
from tests.serving.test_unit_file import MINIMAL, written


class SteppedUnit:
    """A unit of two ranks whose agents obey at once. `clock` is the monotonic clock, in seconds; that of the day is
    ahead of it by `step`.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.unit = serve_unit.load_unit(written(folder, MINIMAL | changes))
        self.clock = 1000.0
        self.step = 0.0
        self.full = self.anyway = False
        self.saved: dict[str, Any] = {}
        record = serve_lifecycle.UnitRecord("qwen")
        self.keep(record)
        self.running: dict[int, int] = {}
        self.gates: dict[int, int] = {}
        self.ended: set[int] = set()
        self.hung: set[int] = set()
        self.rest: dict[int, str] = {}
        """What the agent of a rank whose service has ended reports, where it is not idle."""
        self.kernel, self.remark = "", ""
        self.skews = [serve_lifecycle.ClockSkew(0.0, 0.01), serve_lifecycle.ClockSkew(0.0, 0.01)]
        self.versions = [self.unit.version, self.unit.version]
        self.boots = ["boot0", "boot1"]
        self.clean = [True, True]
        self.away: set[int] = set()

    def keep(self, record: Any) -> None:
        """Start a coordinator with this record."""
        self.lifecycle = serve_lifecycle.UnitLifecycle(
            self.unit, record, self.save, self.clock, lambda: self.clock + self.step
        )

    def save(self, values: dict[str, Any]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.saved = values

    def pass_by(self, seconds: float) -> None:
        """Let time pass; every agent asks every 2 s."""
        until = self.clock + seconds
        while self.clock < until:
            self.clock += 2
            for rank in {0, 1} - self.away:
                self.ask(rank)

    def ask(self, rank: int) -> str:
        state = "ended" if rank in self.ended else "running" if rank in self.running else self.rest.get(rank, "idle")
        if rank in self.hung:
            state = "starting"
        gate = (self.gates[rank], True, self.remark) if rank in self.gates else None
        report = serve_lifecycle.AgentReport(
            state=state,
            generation=self.running.get(rank, 0),
            boot=self.boots[rank],
            clean=self.clean[rank],
            leaving=False,
            detail="exit code 0",
            gate=gate,
            heard=self.clock,
            skew=self.skews[rank],
            kernel=self.kernel,
            version=self.versions[rank],
        )
        answer = self.lifecycle.reported(rank, report)
        self.anyway = "anyway" in answer
        if answer["order"] == "stop":
            self.running.pop(rank, None)
            self.gates.pop(rank, None)
            self.ended.discard(rank)
            self.hung.discard(rank)
        elif answer["order"] == "gate":
            self.gates[rank] = answer["generation"]
        elif rank not in self.running and self.gates.get(rank) == answer["generation"]:
            self.running[rank] = answer["generation"]
        return str(answer["order"])

    def up(self) -> None:
        assert self.lifecycle.set_desired_state("up", False, self.clock)[0]
        self.prove()

    def prove(self) -> None:
        self.pass_by(8)
        self.lifecycle.proved(self.record.generation, 0.5, False, self.clock)
        assert self.record.state == "ready"

    @property
    def record(self) -> Any:
        return self.lifecycle.record


def report(unit: SteppedUnit, rank: int, **changes: Any) -> dict[str, Any]:
    """Have a rank report this, now; the answer."""
    values = {"state": "idle", "generation": 0, "boot": f"boot{rank}", "clean": True, "leaving": False, "detail": ""}
    values |= {"gate": None, "heard": unit.clock, "skew": unit.skews[rank], "kernel": "", "version": ""}
    return unit.lifecycle.reported(rank, serve_lifecycle.AgentReport(**{**values, **changes}))


def gating(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock) == (True, "unit qwen is starting: generation 1")
    assert unit.record.state == "gating"
