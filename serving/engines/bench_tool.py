"""The tools by which engines are measured, `vllm bench serve` and `sglang.bench_serving`: command and result. Pure.

Prompts are random tokens of a seed. An engine keeps the prefixes of what it has answered, so each call needs a seed of
its own, and no prompt may be sent twice: the tools' own warm-up, which sends the first prompt before, is off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serving.engines.version import version_key

OUTPUT_TOKENS = 256
"""Tokens of each answer. The end of the text is ignored, so that each answer has as many."""
WARM_UP_TOKENS = 16
"""Tokens of each answer before the measurement."""
CONCURRENCY, INPUT_TOKENS = (1, 4), (8192, 16384, 65536)
"""The measured numbers of requests at once, and tokens of each prompt."""
QUICK_INPUT_TOKENS = 1024
"""Tokens of each prompt of a short measurement, with one request at a time."""
SPARE_TOKENS = 256
"""Tokens of the context that are left free: a prompt may become longer when the engine reads its text again."""
_FIGURES = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms")
_LEAST_OUTPUT = 0.95
"""Share of the requested tokens that the answers have at least."""


class BenchToolError(Exception):
    """A result that cannot be used. The text is one line."""


@dataclass(frozen=True)
class BenchCase:
    """One measurement: `concurrency` requests at once, tokens of each prompt and of each answer, and so many rounds."""

    concurrency: int
    input_tokens: int
    output_tokens: int = OUTPUT_TOKENS
    rounds: int = 2

    @property
    def requests(self) -> int:
        """Number of requests, four at least."""
        return max(4, self.rounds * self.concurrency)

    def __str__(self) -> str:
        return f"{self.concurrency} x {self.input_tokens} tokens"


@dataclass(frozen=True)
class BenchTarget:
    """The API that is measured. `version`: of the engine. `base_url`: of its head, without a path. `model`: the folder
    of the model in the container. `served_name`: the name by which clients ask for it. `args`: the options of the
    engine in rack.yaml.
    """

    version: str
    base_url: str
    model: str
    served_name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class BenchFigures:
    """What a tool measured: output tokens each second over all requests, and in milliseconds the time to the first
    token (TTFT) and the time for each further one (TPOT).
    """

    output_throughput: float
    ttft_median_ms: float
    ttft_p99_ms: float
    tpot_median_ms: float
    tpot_p99_ms: float


def cases(context: int, sequences: int, *, quick: bool) -> Iterator[tuple[BenchCase, str]]:
    """Yield each measurement, and why a unit cannot serve it; empty if it can.

    Args:
        context: tokens of the longest sequence of the unit.
        sequences: sequences that it serves at once.
        quick: the short measurement instead of the whole matrix.
    """
    all_cases = (
        [BenchCase(1, QUICK_INPUT_TOKENS)]
        if quick
        else [BenchCase(concurrency, tokens) for concurrency in CONCURRENCY for tokens in INPUT_TOKENS]
    )
    for case in all_cases:
        needed = case.input_tokens + case.output_tokens + SPARE_TOKENS
        yield case, unserved_reason(case, needed, context, sequences)


def unserved_reason(case: BenchCase, needed: int, context: int, sequences: int) -> str:
    """Return why a unit cannot serve a measurement; empty if it can.

    Args:
        case: the measurement.
        needed: tokens of its longest sequence.
        context: tokens of the longest sequence of the unit.
        sequences: sequences that the unit computes at once.
    """
    reasons = [f"needs a context of {needed} tokens, the unit has {context}"] if needed > context else []
    if case.concurrency > sequences:
        reasons.append(f"needs {case.concurrency} sequences, the unit has {sequences}")
    return "; ".join(reasons)


# claim: serving.bench-tool
@dataclass(frozen=True)
class BenchTool:
    """The measuring tool of an engine.

    `title`: of the engine. `since`: the first release that can be measured. `words`: the command, from the target, the
    path of a new file for the result, and the options that all tools have. `appends`: whether the tool appends a line
    to its file, and does not write one object.
    """

    title: str
    since: str
    words: Callable[[BenchTarget, str, tuple[str, ...]], tuple[str, ...]]
    appends: bool = False

    def fault(self, version: str) -> str:
        """Return why a release cannot be measured, empty if it can."""
        if version_key(version) >= version_key(self.since):
            return ""
        return f"{self.title} {version} cannot be measured: its tool sends a prompt twice; {self.since} or later can"

    def command(
        self, target: BenchTarget, case: BenchCase, result: str, seed: int, *, warm_up: bool = False
    ) -> tuple[str, ...]:
        """Return the command of the tool, in the container of the head.

        Args:
            target: what is measured.
            case: the measurement.
            result: path of a new file for the result.
            seed: for the prompts; no two calls may have the same.
            warm_up: send one round of requests with short answers.
        """
        requests = case.concurrency if warm_up else case.requests
        output = WARM_UP_TOKENS if warm_up else case.output_tokens
        path = target.args.get("tokenizer", target.args.get("tokenizer-path"))
        common = (
            *("--base-url", target.base_url, "--model", target.model),
            *("--random-input-len", str(case.input_tokens), "--random-output-len", str(output)),
            *("--num-prompts", str(requests), "--max-concurrency", str(case.concurrency)),
            # The tool has the same tokenizer as the engine.
            *("--seed", str(seed), "--disable-tqdm", *(("--tokenizer", str(path)) if path is not None else ())),
        )
        return self.words(target, result, common)

    def figures(self, text: str, case: BenchCase) -> BenchFigures:
        """Return the figures of a result file; `case`: the measurement that it is of. Raises BenchToolError."""
        lines = text.strip().splitlines() or [""]
        return parse_result(lines[-1] if self.appends else text, case)


def parse_result(text: str, case: BenchCase) -> BenchFigures:
    """Return the figures of a result.

    Args:
        text: one JSON object.
        case: the measurement that it is of.

    Raises:
        BenchToolError: it is not a result, requests failed, or answers are shorter than requested.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BenchToolError("the result of the tool is not a JSON object")
    completed, failed = _read_number(found, "completed"), found.get("failed")
    if completed != case.requests or failed:
        also = f", {failed} failed" if failed else ""
        raise BenchToolError(f"{completed:g} of {case.requests} requests were answered{also}")
    output, expected = _read_number(found, "total_output_tokens"), case.requests * case.output_tokens
    if not _LEAST_OUTPUT * expected <= output <= expected / _LEAST_OUTPUT:
        raise BenchToolError(f"the answers have {output:g} tokens, expected {expected}")
    return BenchFigures(*(_read_number(found, name) for name in _FIGURES))


def _read_number(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        if name == "completed" and value == 0:
            return 0.0
        raise BenchToolError(f"the result of the tool has no usable {name}")
    return float(value)
