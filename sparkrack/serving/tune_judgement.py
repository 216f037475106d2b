"""How a trial of `sparkrack serve tune` is judged: whether it is better, and why one has failed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from sparkrack.serving.coordinator import CoordinatorStatus, CoordinatorTransition

RUNS = 3
"""Measurements of each trial, in one start of the unit."""
MARGIN_GIB = 1.0
"""GiB above the floor of the memory guard that each node has left at any time of a trial. The guard looks ten times a
second, and a longer prompt than the measured one takes more (chosen, not measured on a GB10)."""
DRIVER_FAULT = re.compile(r"NVRM: Xid(?! \([^)]*\): 4[35](?![0-9]))|NV_ERR_NO_MEMORY")
"""As serving/files/serve_causes.py has it."""
MEMORY_FAULT = re.compile(r"sparkrack-memory-guard: .* ended every |[Oo]ut of memory: Killed process")
WRONG_ANSWER = re.compile(
    r"the answer is '|the answer is \"|the chat completion is |the tool call |embedding|a score |no completion"
)
"""How serving/files/serve_answers.py begins to say what is wrong with an answer."""

Cause = Literal["", "driver", "memory", "hang", "answer", "rdma", "end", "bench"]
"""Why a trial failed: a fault of the GPU or its driver, memory, no answer in time, a wrong answer, ranks without RDMA,
an end of the engine by itself or a gate, or a measurement that failed while the unit serves."""


def is_better(before: Sequence[float], now: Sequence[float]) -> bool:
    """Return whether figures are better: the median by more than the spread of the runs before it."""
    return median(now) - median(before) > max(before) - min(before)


def gain(before: Sequence[float], now: Sequence[float]) -> str:
    """Return how figures stand to those before, in words."""
    change = (median(now) / median(before) - 1) * 100
    spread = (max(before) - min(before)) / median(before) * 100
    return f"{change:+.1f} %, where the runs before differ by {spread:.1f} %"


def short_memory(left: Mapping[str, float], floor: float) -> str:
    """Return which node had too little memory left, empty for none.

    Args:
        left: the least GiB that were available on each node.
        floor: GiB below which the memory guard ends the engine; 0 without a guard.
    """
    least = floor + MARGIN_GIB
    short = [f"{node} had {gib:.1f} GiB available" for node, gib in left.items() if gib < least]
    return f"{', '.join(short)}, and {least:.1f} GiB must be left" if short else ""


def cause_of(status: CoordinatorStatus | None, generation: int, reason: str, kernel: str) -> Cause:
    """Return why a trial failed.

    Args:
        status: what the coordinator answered last; None when it gave no answer.
        generation: of the start of the trial; 0 when it was not started, or its states are not known.
        reason: what is known of the failure.
        kernel: the lines of the kernels' logs since the trial began.
    """
    own = _failed_states(status, generation)
    said = " ".join((reason, kernel, *(one.reason for one in own)))
    if DRIVER_FAULT.search(said):
        return "driver"
    if MEMORY_FAULT.search(said):
        return "memory"
    if any(one.state == "stuck" for one in own) or re.search(r"timed out|no answer within|in a row failed", said):
        return "hang"
    failed = [one.reason for one in own if one.state != "stuck"] if generation else [reason]
    if any(WRONG_ANSWER.search(one) for one in failed):
        return "answer"
    if any("RDMA" in one for one in failed):
        return "rdma"
    if any(re.search(r"no correct .* within", one) for one in failed):
        return "hang"
    return "end" if failed or status is None else "bench"


def first_failure(status: CoordinatorStatus | None, generation: int) -> str:
    """Return the reason of the first failure of a start and of its restarts, empty for none."""
    return next((one.reason for one in _failed_states(status, generation)), "")


def _failed_states(status: CoordinatorStatus | None, generation: int) -> list[CoordinatorTransition]:
    """Return the changes of a start and of its restarts to a state of a unit that failed; none without a start."""
    own = [one for one in status.transitions if one.generation >= generation] if status and generation else []
    return [
        one for one in own if one.state in ("stuck", "stopping", "held") and not one.reason.startswith("asked to stop")
    ]
