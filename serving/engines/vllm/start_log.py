"""What vLLM prints of its memory at its start: 0.10.2 to 0.33.0 measure what is free for keys and values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from serving.engines.start_memory import NUMBER, EngineLogError, RankMemory, StartLog, found_values

_WEIGHTS = re.compile(rf"Model loading took {NUMBER} GiB(?: memory)? and ")
_KV = re.compile(rf"Available KV cache memory: {NUMBER} GiB")
_TOKENS = re.compile(r"GPU KV cache size: ([0-9][0-9,]*) tokens")
_RAY_PROCESS = re.compile(r"\(Ray\w* (pid=[0-9]+(?:, ip=[0-9.]+)?)\)")
_LINES = "Model loading took|KV cache memory: |KV cache size: "


# claim: serving.engine-log
def fullest(logs: Mapping[str, str], stages: int, _drafts: bool) -> RankMemory:
    """Return the memory of the rank that has the least left for keys and values; each rank logs on its node."""
    plain = {node: text.splitlines() for node, text in logs.items()}
    return _find_fullest_rank(next(iter(plain)), plain, plain, stages)


def fullest_on_ray(logs: Mapping[str, str], stages: int, _drafts: bool) -> RankMemory:
    """The same with Ray, where the head has the lines of all ranks."""
    plain = {node: text.splitlines() for node, text in logs.items()}
    head = next(iter(plain))
    if len(plain) == 1:
        return _find_fullest_rank(head, plain, plain, stages)
    plain = _by_ray_process(plain, head)
    return _find_fullest_rank(head, plain, {name: lines for name, lines in plain.items() if name != head}, stages)


def _find_fullest_rank(
    head: str, plain: Mapping[str, list[str]], workers: Mapping[str, list[str]], stages: int
) -> RankMemory:
    tokens = sorted({int(found.replace(",", "")) for found in found_values(plain[head], _TOKENS)})
    if not tokens or tokens[0] == 0:
        raise EngineLogError(f"{head}: the engine printed no `GPU KV cache size`")
    # Stages have caches of different sizes; all of them use the smallest number of tokens.
    if len(tokens) > stages:
        raise EngineLogError(f"{head}: the engine printed {len(tokens)} sizes of its cache, expected {stages}")
    found = [
        RankMemory(
            name,
            _read_single_value(name, lines, _WEIGHTS, "Model loading took"),
            _read_single_value(name, lines, _KV, "Available KV cache memory"),
            tokens[0],
        )
        for name, lines in workers.items()
    ]
    return min(found, key=lambda rank: rank.kv)


def _read_single_value(rank: str, lines: list[str], pattern: re.Pattern[str], title: str) -> float:
    values = set(found_values(lines, pattern))
    if not values:
        raise EngineLogError(f"{rank}: the engine printed no `{title}`")
    if len(values) > 1:
        raise EngineLogError(f"{rank}: the engine printed `{title}` with {' and '.join(sorted(values))} GiB")
    return float(values.pop())


def _by_ray_process(logs: Mapping[str, list[str]], head: str) -> dict[str, list[str]]:
    """Return the lines of the head by the process that printed them; those of the head itself keep its name."""
    found: dict[str, list[str]] = {head: []}
    for line in logs[head]:
        process = _RAY_PROCESS.search(line)
        found.setdefault(f"{head}: {process[1]}" if process else head, []).append(line)
    if any("[repeated " in line for lines in found.values() for line in lines) or len(found) - 1 != len(logs):
        raise EngineLogError(
            f"{head}: Ray printed lines of {len(found) - 1} of {len(logs)} ranks, because it leaves out similar ones; "
            'write RAY_DEDUP_LOGS: "0" under env of the unit and start it again'
        )
    return found


LOG = StartLog(_LINES, fullest)
RAY_LOG = StartLog(_LINES, fullest_on_ray)
