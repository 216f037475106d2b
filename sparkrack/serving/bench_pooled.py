"""Measurement of an engine that pools: texts or pairs each second, as a program in its container asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from core.util import resources
from serving.engines.bench_tool import CONCURRENCY, BenchCase, BenchTarget, BenchToolError, unserved_reason

INPUT_TOKENS = (128, 512, 2048, 8192)
"""Tokens of each text, of a ranking those of query and document."""
QUICK_INPUT_TOKENS = 128
SPARE = 1.25
"""The context that a text needs, by its words: some are more than one token."""
ITEMS = {"embedding": 1, "score": 8}
"""Texts of a request, documents of a ranking."""
_ROUNDS = 16
_FIGURES = ("item_throughput", "latency_median_ms", "latency_p99_ms")


@dataclass(frozen=True)
class PooledFigures:
    """Texts, or pairs of a query and a document, each second over all requests; tokens each second as the engine counts
    them, None where it does not; and in milliseconds the time until a request is answered.
    """

    item_throughput: float
    input_throughput: float | None
    latency_median_ms: float
    latency_p99_ms: float


def cases(context: int, sequences: int, *, quick: bool) -> Iterator[tuple[BenchCase, str]]:
    """Yield each measurement, and why a unit cannot serve it; empty if it can.

    Args:
        context: tokens of the longest text of the unit.
        sequences: texts that it computes at once.
        quick: the short measurement instead of all of them.
    """
    pairs = [(1, QUICK_INPUT_TOKENS)] if quick else [(many, tokens) for many in CONCURRENCY for tokens in INPUT_TOKENS]
    for many, tokens in pairs:
        case = BenchCase(many, tokens, 0, _ROUNDS)
        yield case, unserved_reason(case, int(tokens * SPARE), context, sequences)


@dataclass(frozen=True)
class PooledTool:
    """The program that asks. `kind`: of the unit."""

    kind: Literal["embedding", "score"]

    def command(
        self, target: BenchTarget, case: BenchCase, result: str, seed: int, *, warm_up: bool = False
    ) -> tuple[str, ...]:
        """Return the command, in the container of the head; the arguments are those of BenchTool."""
        asked = {
            "kind": self.kind,
            "base_url": target.base_url,
            "model": target.served_name,
            "concurrency": case.concurrency,
            "requests": case.concurrency if warm_up else case.requests,
            "items": ITEMS[self.kind],
            "input_tokens": case.input_tokens,
            "seed": seed,
        }
        program = resources.shell_text("sparkrack.serving", "files/bench_pooled.py")
        return ("python3", "-c", program, json.dumps(asked), result)

    def figures(self, text: str, case: BenchCase) -> PooledFigures:
        """Return the figures of a result file. Raises BenchToolError."""
        try:
            found = json.loads(text)
            tokens = found["input_throughput"]
            figures = [float(found[name]) for name in _FIGURES]
            completed = int(found["completed"])
        except (ValueError, KeyError, TypeError):
            raise BenchToolError("the result is not one of the program that asks") from None
        if completed != case.requests:
            raise BenchToolError(f"{completed} of {case.requests} requests were answered")
        return PooledFigures(figures[0], None if tokens is None else float(tokens), *figures[1:])
