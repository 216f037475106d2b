"""`python3 -m sglang.bench_serving`, in the container of the head."""

from __future__ import annotations

from serving.engines.bench_tool import BenchTarget, BenchTool


def words(_: BenchTarget, result: str, common: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of the tool.

    A ratio of 1 is a fixed length here. The set `random` is made from a download; token IDs need none.
    """
    return (
        *("python3", "-m", "sglang.bench_serving", "--backend", "sglang", *common),
        *("--dataset-name", "random-ids", "--tokenize-prompt", "--random-range-ratio", "1"),
        *("--warmup-requests", "0", "--output-file", result),
    )


BENCH = BenchTool(title="SGLang", since="0.5.4", words=words, appends=True)
