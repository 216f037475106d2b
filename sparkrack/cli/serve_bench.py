"""`sparkrack serve bench`: measure a running unit with the tool of its own engine, and compare with a baseline."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from sparkrack.cli.options import json_option, rack_option
from sparkrack.serving.bench_comparison import measure_against_baseline
from sparkrack.serving.render_bench import show_bench
from sparkrack.terminal.progress import show_progress


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
    with show_progress(silent=as_json) as screen:
        record, kept = measure_against_baseline(found, unit, "quick" if quick else "full", screen, save=save)
    if as_json:
        click.echo(record.model_dump_json(by_alias=True, indent=1))
    else:
        show_bench(record, kept)
    sys.exit(record.code)
