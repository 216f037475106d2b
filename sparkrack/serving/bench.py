"""Measurement of a running unit with the tool of its own engine, in the container of its head."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from core.util.provenance import revision
from core.util.screen import Screen
from serving.container_paths import INSIDE_MODELS
from serving.desired import path as unit_path
from serving.desired import served_name
from serving.engines.bench_tool import BenchCase, BenchTarget, BenchTool, BenchToolError, cases
from serving.engines.registry import ENGINES
from serving.launch import api_address
from serving.options import ServedUnit
from serving.programs import COORDINATOR
from serving.unit_kinds import pools
from sparkrack.serving import bench_pooled
from sparkrack.serving.bench_pooled import PooledTool
from sparkrack.serving.bench_record import BenchCaseRecord, Kind, ServeBenchRecord

CALL_SECONDS = 3600
"""Seconds for one call of the tool: four requests of 64K tokens at once took minutes on racks that reported figures."""
ANSWER_SECONDS = 30
"""Seconds beside that for the answer of the node."""
FOLDER = "/tmp/sparkrack-bench"  # noqa: S108 - of the container, where only root runs
"""Folder in the container for what the tool writes."""
READY = ("ready", "busy")
"""States of a unit that answers."""
# The sh of busybox takes an empty process ID for 0, its own group.
PREPARE = f"""\
if [ -s {FOLDER}/pid ] && kill -0 "$(cat {FOLDER}/pid)" 2>/dev/null; then echo running; exit 0; fi
rm -rf {FOLDER} && mkdir -m 700 {FOLDER} && echo prepared"""
CLEAN_UP = f"""\
[ ! -s {FOLDER}/pid ] || kill "$(cat {FOLDER}/pid)" 2>/dev/null
rm -rf {FOLDER}"""


class BenchError(Exception):
    """Why a unit cannot be measured. The text is one line."""


@dataclass(frozen=True)
class RunningUnit:
    """A unit as its head has it now. Two starts differ in `generation`, `container` or both."""

    generation: int
    container: str
    image_id: str
    engine_version: str


class UnitHead:
    """The head of a running unit: asks its coordinator, and runs commands in its container."""

    def __init__(self, unit: ServedUnit, node: str, shell: RootShell) -> None:
        self.unit = unit
        self.node = node
        self._shell = shell
        self._name = f"sparkrack-{unit.name}"

    def state(self) -> tuple[str, int]:
        """Return the state of the unit and its generation. Raises BenchError when it does not answer requests."""
        done = self._shell.run(shlex.join([COORDINATOR, unit_path(self.unit, "json"), "status"]))
        if done.rc != 0:
            raise BenchError(f"{self.node}: the state of unit {self.unit.name} is unknown: {_last_line(done.stderr)}")
        try:
            answer = json.loads(done.stdout)
            state, generation = str(answer["state"]), int(answer["generation"])
            reason = str(answer.get("reason", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BenchError(f"{self.node}: the coordinator of unit {self.unit.name} gave no state") from None
        if state not in READY:
            raise BenchError(
                f"{self.node}: unit {self.unit.name} is {state}: {reason}; it can be measured when it is ready or busy"
            )
        return state, generation

    def running(self, generation: int) -> RunningUnit:
        """Return what runs. Raises BenchError."""
        found = self._run_on_head(
            shlex.join(["docker", "inspect", "--format", "{{.Id}} {{.Image}}", self._name])
        ).split()
        if len(found) != 2:
            raise BenchError(f"{self.node}: docker describes the container {self._name} in an unknown form")
        package = ENGINES[self.unit.engine].package
        question = f"import importlib.metadata as found; print(found.version({package!r}))"
        version = self._run_on_head(self._command_in_container("python3", "-c", question)).strip()
        if not version or len(version) > 100:
            raise BenchError(f"{self.node}: the container {self._name} does not tell the version of {package}")
        return RunningUnit(generation, found[0], found[1], version)

    def check(self, before: RunningUnit) -> None:
        """Make sure that the same start still answers. Raises BenchError."""
        if self.running(self.state()[1]) != before:
            raise BenchError(f"unit {self.unit.name} was started again during the measurement")

    @contextmanager
    def folder(self) -> Iterator[None]:
        """Keep a folder for the tool in the container during the block; the tool ends with it. Raises BenchError."""
        if self._run_on_head(self._command_in_container("sh", "-c", PREPARE)).strip() != "prepared":
            raise BenchError(f"{self.node}: another measurement of unit {self.unit.name} runs; wait until it ends")
        try:
            yield
        finally:
            # An interrupted command may still run in this shell, and the next one would wait for it.
            self._shell.close()
            with suppress(UnreachableError):
                self._shell.run(self._command_in_container("sh", "-c", CLEAN_UP))

    def measure(self, command: tuple[str, ...], result: str) -> str:
        """Run the tool and return its result file. Raises BenchError with the last line that the tool printed."""
        launch = resources.shell_text("sparkrack.serving", "files/bench-run.sh")
        words = ("sh", "-c", launch, "bench-run", FOLDER, str(CALL_SECONDS), *command)
        done = self._shell.run(self._command_in_container(*words))
        if done.rc != 0:
            log = self._shell.run(self._command_in_container("tail", "-n", "20", f"{FOLDER}/log"))
            why = f"no end within {CALL_SECONDS} s" if done.rc == 124 else _last_line(log.stdout or done.stderr)
            raise BenchError(f"{command[0]} failed (exit {done.rc}): {why}")
        return self._run_on_head(self._command_in_container("cat", result))

    def _command_in_container(self, *words: str) -> str:
        return shlex.join(["docker", "exec", self._name, *words])

    def _run_on_head(self, command: str) -> str:
        done = self._shell.run(command)
        if done.rc != 0:
            raise BenchError(f"{self.node}: {_last_line(done.stderr) or f'exit {done.rc}'}")
        return str(done.stdout)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable_line(lines[-1][:300]) if lines else "no output"


def bench_tool(unit: ServedUnit) -> BenchTool | PooledTool:
    """Return what measures a unit. Raises BenchError where its engine, or the release of it, cannot be measured."""
    engine = ENGINES[unit.engine]
    if engine.bench is None:
        raise BenchError(f"{engine.title} has no measuring tool that this command knows")
    if unit.kind == "embedding" or unit.kind == "score":
        return PooledTool(unit.kind)
    if fault := engine.bench.fault(unit.version):
        raise BenchError(fault)
    return engine.bench


def matrix_of(unit: ServedUnit, *, quick: bool) -> list[tuple[BenchCase, str]]:
    """Return the measurements of a unit, each with why it cannot serve it. Raises BenchError where it serves none."""
    bench_tool(unit)
    matrix = list((bench_pooled.cases if pools(unit) else cases)(unit.context, unit.sequences, quick=quick))
    if all(reason for _, reason in matrix):
        raise BenchError(f"unit {unit.name} can serve no measurement: {matrix[0][0]} {matrix[0][1]}")
    return matrix


def measure(
    rack: Rack,
    head: UnitHead,
    kind: Kind,
    matrix: list[tuple[BenchCase, str]],
    screen: Screen,
    *,
    again: bool = False,
) -> ServeBenchRecord:
    """Measure each case of a matrix, with the reason for which it is skipped; what fails is in the record. Raises
    BenchError when the unit cannot be measured at all.

    `again`: after another measurement, by which a unit may still be called busy.
    """
    unit = head.unit
    screen.phase(f"measure unit {unit.name}", [head.node])
    screen.step(head.node, "ask the coordinator and the container")
    state, generation = head.state()
    running = head.running(generation)
    if state == "busy" and not again:
        screen.warn(f"unit {unit.name} is busy: it computes for others, or did a minute ago; figures may be worse")
    made = datetime.now(UTC)
    tool = bench_tool(unit)
    target = BenchTarget(
        version=unit.version,
        base_url=f"http://{api_address(rack, unit)}:{unit.api.port}",
        model=f"{INSIDE_MODELS}/{unit.model}",
        served_name=served_name(unit),
        args=unit.args,
    )
    with head.folder():
        found = _measure_matrix(head, tool, target, matrix, running, screen)
    return ServeBenchRecord(
        schema="sparkrack.serve-bench/1",
        rack=rack.rack,
        file=str(rack.source),
        revision=revision(rack.source),
        made=made,
        unit=unit.name,
        model=unit.model,
        nodes=unit.ranks(rack.nodes),
        engine=unit.engine,
        engine_version=running.engine_version,
        image=unit.image,
        image_id=running.image_id,
        kind=kind,
        unit_kind=unit.kind,
        busy=state == "busy",
        cases=tuple(found),
    )


def _measure_matrix(
    head: UnitHead,
    tool: BenchTool | PooledTool,
    target: BenchTarget,
    matrix: list[tuple[BenchCase, str]],
    running: RunningUnit,
    screen: Screen,
) -> list[BenchCaseRecord]:
    found: list[BenchCaseRecord] = []
    for number, (case, reason) in enumerate(matrix, 1):
        record = BenchCaseRecord(
            concurrency=case.concurrency,
            input_tokens=case.input_tokens,
            output_tokens=case.output_tokens,
            requests=case.requests,
            state="skipped",
            reason=reason,
        )
        if not reason and any(one.state == "failed" for one in found):
            record = record.model_copy(update={"reason": "an earlier measurement failed"})
        elif not reason:
            screen.step(head.node, f"{case}", number, len(matrix))
            record = _measure_case(head, tool, target, case, record, running)
        found.append(record)
    return found


def _measure_case(
    head: UnitHead,
    tool: BenchTool | PooledTool,
    target: BenchTarget,
    case: BenchCase,
    record: BenchCaseRecord,
    running: RunningUnit,
) -> BenchCaseRecord:
    """Warm up and measure once. What fails is in the record, so that the measurements before it are not lost."""
    try:
        for warm_up in (True, False):
            result = f"{FOLDER}/{case.concurrency}-{case.input_tokens}-{'warm-up' if warm_up else 'result'}.json"
            command = tool.command(target, case, result, secrets.randbelow(2**31), warm_up=warm_up)
            text = head.measure(command, result)
        figures = tool.figures(text, case)
        head.check(running)
    except (BenchError, BenchToolError, UnreachableError) as error:
        return record.model_copy(update={"state": "failed", "reason": printable_line(str(error))})
    return record.with_figures(figures)
