"""`sparkrack serve bench`: measure a running unit with the tool of its own engine, and compare with a baseline."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model import Rack, load
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from core.util.provenance import revision
from core.util.tables import print_whole
from serving.container_paths import INSIDE_MODELS
from serving.desired import path as unit_path
from serving.desired import served_name
from serving.engines import bench_tool
from serving.engines.bench_tool import BenchCase, BenchTarget, BenchToolError
from serving.launch import api_address
from serving.options import ServedUnit, select_unit
from serving.programs import COORDINATOR
from sparkrack.cli import serve_bench_record as records
from sparkrack.cli.options import json_option, rack_option
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.serve_bench_record import BenchCaseRecord, Kind, ServeBenchRecord

CALL_SECONDS = 3600
"""Seconds for one call of the tool: four requests of 64K tokens at once took minutes on racks that reported figures."""
ANSWER_SECONDS = 30
"""Seconds beside that for the answer of the node."""
FOLDER = "/tmp/sparkrack-bench"  # noqa: S108 - of the container, where only root runs
"""Folder in the container for what the tool writes."""
READY = ("ready", "busy")
"""States of a unit that answers."""
PREPARE = f"""\
if kill -0 "$(cat {FOLDER}/pid 2>/dev/null)" 2>/dev/null; then echo running; exit 0; fi
rm -rf {FOLDER} && mkdir -m 700 {FOLDER} && echo prepared"""
CLEAN_UP = f"""\
kill "$(cat {FOLDER}/pid 2>/dev/null)" 2>/dev/null
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
            raise BenchError(f"{self.node}: the state of unit {self.unit.name} is unknown: {_last(done.stderr)}")
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
        found = self._ask(shlex.join(["docker", "inspect", "--format", "{{.Id}} {{.Image}}", self._name])).split()
        if len(found) != 2:
            raise BenchError(f"{self.node}: docker describes the container {self._name} in an unknown form")
        package = "sglang" if self.unit.kind == "sglang" else "vllm"
        question = f"import importlib.metadata as found; print(found.version({package!r}))"
        version = self._ask(self._inside("python3", "-c", question)).strip()
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
        if self._ask(self._inside("sh", "-c", PREPARE)).strip() != "prepared":
            raise BenchError(f"{self.node}: another measurement of unit {self.unit.name} runs; wait until it ends")
        try:
            yield
        finally:
            # An interrupted command may still run in this shell, and the next one would wait for it.
            self._shell.close()
            with suppress(UnreachableError):
                self._shell.run(self._inside("sh", "-c", CLEAN_UP))

    def measure(self, command: tuple[str, ...], result: str) -> str:
        """Run the tool and return its result file. Raises BenchError with the last line that the tool printed."""
        launch = resources.shell_text("sparkrack.cli", "files/bench-run.sh")
        words = ("sh", "-c", launch, "bench-run", FOLDER, str(CALL_SECONDS), *command)
        done = self._shell.run(self._inside(*words))
        if done.rc != 0:
            log = self._shell.run(self._inside("tail", "-n", "20", f"{FOLDER}/log"))
            why = f"no end within {CALL_SECONDS} s" if done.rc == 124 else _last(log.stdout or done.stderr)
            raise BenchError(f"{command[0]} failed (exit {done.rc}): {why}")
        return self._ask(self._inside("cat", result))

    def _inside(self, *words: str) -> str:
        return shlex.join(["docker", "exec", self._name, *words])

    def _ask(self, command: str) -> str:
        done = self._shell.run(command)
        if done.rc != 0:
            raise BenchError(f"{self.node}: {_last(done.stderr) or f'exit {done.rc}'}")
        return str(done.stdout)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable_line(lines[-1][:300]) if lines else "no output"


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option("--save", is_flag=True, help="Keep the result as the baseline of later measurements.")
@click.option("--quick", is_flag=True, help="One measurement only: one request at a time, prompts of 1024 tokens.")
@rack_option
@json_option
def bench(unit: str, save: bool, quick: bool, rack: Path, as_json: bool) -> None:
    """Measure a running unit with the tool of its own engine, and compare with the saved baseline.

    \b
      sparkrack serve bench qwen --save
      sparkrack serve bench qwen

    The tool (`vllm bench serve` or `sglang.bench_serving`) runs in the container of the head: 1 and 4 requests at once,
    prompts of 8192, 16384 and 65536 random tokens, answers of 256 tokens, as far as context and sequences of the unit
    allow. Each measurement has a warm-up before it. The whole takes about half an hour at 1000 prompt tokens/s. Other
    requests to the unit at the same time make the figures worse, and are answered later themselves.

    Shown are output tokens/s of all requests together, and median and 99th percentile of the time to the first token
    (TTFT) and the time for each further token (TPOT). Each result is kept on this machine.

    Exit 0, 2 when output tokens/s or median TTFT are more than 5 % worse than the baseline, 1 when the unit is not
    ready or a measurement failed.
    """
    found = load(rack)
    chosen = select_unit(found, unit)
    kind: Kind = "quick" if quick else "full"
    matrix = list(bench_tool.cases(chosen.context, chosen.sequences, quick=quick))
    if fault := bench_tool.release_fault(chosen.kind, chosen.version):
        raise click.ClickException(fault)
    if all(reason for _, reason in matrix):
        raise click.ClickException(f"unit {unit} can serve no measurement: {matrix[0][0]} {matrix[0][1]}")
    baseline = _baseline(found, unit, kind, replace=save)
    head = chosen.ranks(found.nodes)[0]
    try:
        with (
            show_progress(silent=as_json) as screen,
            open_shells(found, [head], CALL_SECONDS + ANSWER_SECONDS) as shells,
        ):
            record = _measured(found, UnitHead(chosen, head, shells[head]), kind, matrix, screen)
    except (BenchError, UnreachableError) as error:
        raise click.ClickException(printable_line(str(error))) from None
    record = records.compared(record, baseline)
    record = record.model_copy(update={"saved": save and record.complete})
    try:
        kept = records.keep(record)
    except OSError as error:
        raise click.ClickException(f"{records.folder(found.rack, unit)}: cannot be written: {error.strerror}") from None
    if as_json:
        click.echo(record.model_dump_json(by_alias=True, indent=1))
    else:
        show(record, kept)
    sys.exit(record.code)


def _baseline(rack: Rack, unit: str, kind: Kind, *, replace: bool) -> ServeBenchRecord | None:
    """Return the baseline, before anything is measured. One that cannot be read is replaced by --save only."""
    try:
        return records.read_baseline(rack.rack, unit, kind)
    except records.BaselineError as error:
        if not replace:
            raise click.ClickException(f"{error}; measure with --save to replace it") from None
        click.echo(f"warning: {error}; it is replaced", err=True)
        return None


def _measured(
    rack: Rack, head: UnitHead, kind: Kind, matrix: list[tuple[BenchCase, str]], screen: ProgressDisplay
) -> ServeBenchRecord:
    unit = head.unit
    screen.phase(f"measure unit {unit.name}", [head.node])
    screen.step(head.node, "ask the coordinator and the container")
    state, generation = head.state()
    running = head.running(generation)
    if state == "busy":
        screen.warn(f"unit {unit.name} is busy: it computes for others, or did a minute ago; figures may be worse")
    made = datetime.now(UTC)
    target = BenchTarget(
        engine=unit.kind,
        version=unit.version,
        base_url=f"http://{api_address(rack, unit)}:{unit.api.port}",
        model=f"{INSIDE_MODELS}/{unit.model}",
        served_name=served_name(unit),
        args=unit.args,
    )
    found: list[BenchCaseRecord] = []
    with head.folder():
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
                record = _one(head, target, case, record, running)
            found.append(record)
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
        busy=state == "busy",
        cases=tuple(found),
    )


def _one(
    head: UnitHead, target: BenchTarget, case: BenchCase, record: BenchCaseRecord, running: RunningUnit
) -> BenchCaseRecord:
    """Warm up and measure once. What fails is in the record, so that the measurements before it are not lost."""
    try:
        for warm_up in (True, False):
            result = f"{FOLDER}/{case.concurrency}-{case.input_tokens}-{'warm-up' if warm_up else 'result'}.json"
            command = bench_tool.command(target, case, result, secrets.randbelow(2**31), warm_up=warm_up)
            text = head.measure(command, result)
        figures = bench_tool.parse_result(target.engine, text, case)
        head.check(running)
    except (BenchError, BenchToolError, UnreachableError) as error:
        return record.model_copy(update={"state": "failed", "reason": printable_line(str(error))})
    return record.with_figures(figures)


def show(record: ServeBenchRecord, kept: Path) -> None:
    """Print a record as a table, with what is slower than the baseline."""
    click.echo(f"{record.unit}: {record.engine} {record.engine_version}, image {record.image_id[:19]}")
    table = Table(box=None, pad_edge=False)
    titles = ("requests at once", "input", "output", "tokens/s", "TTFT", "p99", "TPOT", "p99", "against baseline")
    for title in titles:
        table.add_column(title, justify="left" if title == titles[-1] else "right", no_wrap=True)
    for one in record.cases:
        figures = (one.ttft_median_ms, one.ttft_p99_ms, one.tpot_median_ms, one.tpot_p99_ms)
        table.add_row(
            str(one.concurrency),
            str(one.input_tokens),
            str(one.output_tokens),
            "-" if one.output_throughput is None else f"{one.output_throughput:.2f}",
            *("-" if value is None else f"{value:.1f}" for value in figures),
            Text(_against(one), style="red" if one.slower or one.state == "failed" else ""),
        )
    print_whole(Console(highlight=False), table)
    click.echo("tokens/s: of all requests together. TTFT, TPOT: in ms, median and 99th percentile")
    for one in record.cases:
        if one.reason:
            case = BenchCase(one.concurrency, one.input_tokens)
            click.echo(f"{case}: {one.state}: {one.reason}", err=one.state == "failed")
    if record.baseline:
        then = record.baseline
        click.echo(f"baseline: {then.made:%Y-%m-%d %H:%M} UTC, {record.engine} {then.engine_version}")
    elif not record.saved:
        click.echo("no baseline: measure with --save to keep one")
    click.echo(f"{'saved as the baseline; ' if record.saved else ''}kept in {kept}")


def _against(case: BenchCaseRecord) -> str:
    """Return how a measurement stands to the baseline, in words."""
    if case.state != "measured":
        return case.state
    parts = []
    for title, name, now, then in (
        ("tokens/s", "output_throughput", case.output_throughput, case.baseline_output_throughput),
        ("TTFT", "ttft_median_ms", case.ttft_median_ms, case.baseline_ttft_median_ms),
    ):
        if now and then:
            parts.append(f"{title} {(now / then - 1) * 100:+.1f} %{' SLOWER' if name in case.slower else ''}")
    return ", ".join(parts) or "-"
