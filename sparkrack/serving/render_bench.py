"""What `sparkrack serve bench` measured, as a table, with what is slower than the baseline."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.util.tables import print_sentence, print_whole
from serving.engines.bench_tool import BenchCase
from sparkrack.serving.bench_record import BenchCaseRecord, ServeBenchRecord

_GENERATED = ("output", "tokens/s", "TTFT", "p99", "TPOT", "p99")
_ITEMS = {"embedding": "texts", "score": "pairs"}
"""What an engine that pools is measured by."""


def show_bench(record: ServeBenchRecord, kept: Path) -> None:
    """Print a record as a table, with what is slower than the baseline."""
    console = Console(highlight=False, markup=False)
    print_sentence(console, f"{record.unit}: {record.engine} {record.engine_version}, image {record.image_id[:19]}")
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
            *(_list_pooled_figures(one) if items else _list_generated_figures(one)),
            Text(_compare_with_baseline(one, items), style="red" if one.slower or one.state == "failed" else ""),
        )
    print_whole(console, table)
    if items:
        print_sentence(
            console, f"{items}/s, tokens/s: of all requests together. answer: in ms, median and 99th percentile"
        )
    else:
        print_sentence(console, "tokens/s: of all requests together. TTFT, TPOT: in ms, median and 99th percentile")
    for one in record.cases:
        if one.reason:
            case = BenchCase(one.concurrency, one.input_tokens)
            to = Console(highlight=False, markup=False, stderr=True) if one.state == "failed" else console
            print_sentence(to, f"{case}: {one.state}: {one.reason}")
    if record.baseline:
        then = record.baseline
        print_sentence(console, f"baseline: {then.made:%Y-%m-%d %H:%M} UTC, {record.engine} {then.engine_version}")
    elif not record.saved:
        print_sentence(console, "no baseline: measure with --save to keep one")
    print_sentence(console, f"{'saved as the baseline; ' if record.saved else ''}kept in {kept}")


def _format_figure(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _list_generated_figures(case: BenchCaseRecord) -> list[str]:
    times = (case.ttft_median_ms, case.ttft_p99_ms, case.tpot_median_ms, case.tpot_p99_ms)
    return [
        str(case.output_tokens),
        _format_figure(case.output_throughput, 2),
        *(_format_figure(value, 1) for value in times),
    ]


def _list_pooled_figures(case: BenchCaseRecord) -> list[str]:
    found = (case.item_throughput, case.input_throughput, case.latency_median_ms, case.latency_p99_ms)
    return [_format_figure(value, 1) for value in found]


def _compare_with_baseline(case: BenchCaseRecord, items: str) -> str:
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
