"""`sparkrack serve bench`: measure a running unit with the tool of its own engine, and compare with a baseline."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model import Rack, load
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from core.util.tables import print_whole
from serving.engines.bench_tool import BenchCase, cases
from serving.options import select_unit
from serving.unit_kinds import pools
from sparkrack.cli.options import json_option, rack_option
from sparkrack.serving import bench_pooled
from sparkrack.serving import bench_record as records
from sparkrack.serving.bench import ANSWER_SECONDS, CALL_SECONDS, BenchError, UnitHead, bench_tool, measure
from sparkrack.serving.bench_record import BenchCaseRecord, Kind, ServeBenchRecord
from sparkrack.terminal.progress import show_progress

_GENERATED = ("output", "tokens/s", "TTFT", "p99", "TPOT", "p99")
_ITEMS = {"embedding": "texts", "score": "pairs"}
"""What an engine that pools is measured by."""


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

    A unit of kind embedding or score is asked by a program of this tool, in its container: for texts of 128, 512, 2048
    and 8192 tokens, or rankings of 8 documents. Shown are texts/s or pairs/s, tokens/s, and the time until a request is
    answered.

    Exit 0, 2 when a throughput or a median time (TTFT, answer) is more than 5 % worse than the baseline, 1 when the
    unit is not ready or a measurement failed.
    """
    found = load(rack)
    chosen = select_unit(found, unit)
    kind: Kind = "quick" if quick else "full"
    matrix = list((bench_pooled.cases if pools(chosen) else cases)(chosen.context, chosen.sequences, quick=quick))
    try:
        bench_tool(chosen)
    except BenchError as error:
        raise CommandError(str(error)) from None
    if all(reason for _, reason in matrix):
        raise CommandError(f"unit {unit} can serve no measurement: {matrix[0][0]} {matrix[0][1]}")
    baseline = _baseline(found, unit, kind, replace=save)
    head = chosen.ranks(found.nodes)[0]
    try:
        with (
            show_progress(silent=as_json) as screen,
            open_shells(found, [head], CALL_SECONDS + ANSWER_SECONDS) as shells,
        ):
            record = measure(found, UnitHead(chosen, head, shells[head]), kind, matrix, screen)
    except (BenchError, UnreachableError) as error:
        raise CommandError(printable_line(str(error))) from None
    record = records.compared(record, baseline)
    record = record.model_copy(update={"saved": save and record.complete})
    try:
        kept = records.keep(record)
    except OSError as error:
        raise CommandError(f"{records.folder(found.rack, unit)}: cannot be written: {error.strerror}") from None
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
            raise CommandError(f"{error}; measure with --save to replace it") from None
        click.echo(f"warning: {error}; it is replaced", err=True)
        return None


def show(record: ServeBenchRecord, kept: Path) -> None:
    """Print a record as a table, with what is slower than the baseline."""
    click.echo(f"{record.unit}: {record.engine} {record.engine_version}, image {record.image_id[:19]}")
    table = Table(box=None, pad_edge=False)
    items = _ITEMS.get(record.unit_kind, "")
    titles = (f"{items}/s", "tokens/s", "answer", "p99") if items else _GENERATED
    titles = ("requests at once", "input", *titles, "against baseline")
    for title in titles:
        table.add_column(title, justify="left" if title == titles[-1] else "right", no_wrap=True)
    for one in record.cases:
        table.add_row(
            str(one.concurrency),
            str(one.input_tokens),
            *(_pooled_figures(one) if items else _generated_figures(one)),
            Text(_against(one, items), style="red" if one.slower or one.state == "failed" else ""),
        )
    print_whole(Console(highlight=False), table)
    if items:
        click.echo(f"{items}/s, tokens/s: of all requests together. answer: in ms, median and 99th percentile")
    else:
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


def _figure(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _generated_figures(case: BenchCaseRecord) -> list[str]:
    times = (case.ttft_median_ms, case.ttft_p99_ms, case.tpot_median_ms, case.tpot_p99_ms)
    return [str(case.output_tokens), _figure(case.output_throughput, 2), *(_figure(value, 1) for value in times)]


def _pooled_figures(case: BenchCaseRecord) -> list[str]:
    found = (case.item_throughput, case.input_throughput, case.latency_median_ms, case.latency_p99_ms)
    return [_figure(value, 1) for value in found]


def _against(case: BenchCaseRecord, items: str) -> str:
    """Return how a measurement stands to the baseline, in words."""
    if case.state != "measured":
        return case.state
    parts = []
    for title, name, now, then in (
        ("tokens/s", "output_throughput", case.output_throughput, case.baseline_output_throughput),
        ("TTFT", "ttft_median_ms", case.ttft_median_ms, case.baseline_ttft_median_ms),
        (f"{items}/s", "item_throughput", case.item_throughput, case.baseline_item_throughput),
        ("answer", "latency_median_ms", case.latency_median_ms, case.baseline_latency_median_ms),
    ):
        if now and then:
            parts.append(f"{title} {(now / then - 1) * 100:+.1f} %{' SLOWER' if name in case.slower else ''}")
    return ", ".join(parts) or "-"
