"""What an engine prints of its memory at its start: weights, and the cache of keys and values. Pure.

vLLM 0.10.2 to 0.33.0 measures what is free for keys and values (`Available KV cache memory`), SGLang 0.5.4 to 0.5.23
prints what it allocated. Both count in units of 2^30 bytes; SGLang calls them GB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Launcher = Literal["vllm", "vllm-ray", "sglang"]

LINES = "Model loading took|KV cache memory: |KV cache size: |Load weight end|KV Cache |Mamba Cache |KV cache allocated"
"""An extended regular expression for the lines that are read, of any engine."""

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_VLLM_WEIGHTS = re.compile(rf"Model loading took {_NUMBER} GiB(?: memory)? and ")
_VLLM_KV = re.compile(rf"Available KV cache memory: {_NUMBER} GiB")
_VLLM_TOKENS = re.compile(r"GPU KV cache size: ([0-9][0-9,]*) tokens")
_RAY_PROCESS = re.compile(r"\(Ray\w* (pid=[0-9]+(?:, ip=[0-9.]+)?)\)")
_SGLANG_WEIGHTS = re.compile(rf"Load weight end\. .*\bmem usage={_NUMBER} GB")
_SGLANG_KV = re.compile(
    r"KV Cache is allocated\. .*#tokens: ([0-9]+), "
    rf"(?:K size: {_NUMBER} GB, V size: {_NUMBER} GB|KV size: {_NUMBER} GB)"
)
_SGLANG_RESIZED = re.compile(
    rf"Post-capture KV sizing: (?:draft )?KV cache allocated\. .*#tokens: ([0-9]+), KV size: {_NUMBER} GB()()"
)
_SGLANG_BOUND = "VA upper bound"
"""In a line of a cache that later gets its final size, in SGLang 0.5.18 and later."""
_SGLANG_STATE = re.compile(rf" size: {_NUMBER}GB")


class EngineLogError(Exception):
    """Lines that are missing, or contradict each other. The text is one line."""


@dataclass(frozen=True)
class RankMemory:
    """Memory of one rank in GiB. `rank`: its node, or its process where Ray logs. `state`: of Mamba layers, where it is
    not part of `kv`. `kv_tokens`: the tokens that `kv` holds.
    """

    rank: str
    weights: float
    kv: float
    kv_tokens: int
    state: float = 0.0


# claim: serving.engine-log
def fullest(launcher: Launcher, logs: Mapping[str, str], *, stages: int, drafts: bool) -> RankMemory:
    """Return the memory of the fullest rank.

    With vLLM it is the one that has the least left for keys and values, with SGLang the one that took most: each of its
    ranks allocates the tokens that the fullest one has room for.

    Args:
        launcher: the engine and how its ranks are started.
        logs: by node in rank order, what the engine printed at one start. With Ray the head has the lines of all.
        stages: into how many stages the layers are split.
        drafts: whether a second, smaller model drafts tokens.

    Raises:
        EngineLogError: lines are missing, or contradict each other.
    """
    plain = {node: text.splitlines() for node, text in logs.items()}
    if launcher == "sglang":
        ranks = [_sglang(node, lines, drafts=drafts) for node, lines in plain.items()]
        return max(ranks, key=lambda rank: rank.weights + rank.kv + rank.state)
    head = next(iter(plain))
    if launcher == "vllm-ray" and len(plain) > 1:
        plain = _by_ray_process(plain, head)
    tokens = sorted({int(found.replace(",", "")) for found in _found(plain[head], _VLLM_TOKENS)})
    if not tokens or tokens[0] == 0:
        raise EngineLogError(f"{head}: the engine printed no `GPU KV cache size`")
    # Stages have caches of different sizes; all of them use the smallest number of tokens.
    if len(tokens) > stages:
        raise EngineLogError(f"{head}: the engine printed {len(tokens)} sizes of its cache, expected {stages}")
    workers = {name: lines for name, lines in plain.items() if launcher == "vllm" or name != head or len(plain) == 1}
    found = [
        RankMemory(
            name,
            _single(name, lines, _VLLM_WEIGHTS, "Model loading took"),
            _single(name, lines, _VLLM_KV, "Available KV cache memory"),
            tokens[0],
        )
        for name, lines in workers.items()
    ]
    return min(found, key=lambda rank: rank.kv)


def _found(lines: list[str], pattern: re.Pattern[str]) -> Iterator[str]:
    for line in lines:
        if match := pattern.search(line):
            yield match[1]


def _single(rank: str, lines: list[str], pattern: re.Pattern[str], title: str) -> float:
    values = set(_found(lines, pattern))
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


def _sglang(node: str, lines: list[str], *, drafts: bool) -> RankMemory:
    models = 2 if drafts else 1
    weights = [float(found) for found in _found(lines, _SGLANG_WEIGHTS)]
    bound = any(_SGLANG_BOUND in line for line in lines)
    caches = [match for line in lines if (match := (_SGLANG_RESIZED if bound else _SGLANG_KV).search(line))]
    for title, number in (("Load weight end", len(weights)), ("KV Cache is allocated", len(caches))):
        if not number:
            raise EngineLogError(f"{node}: the engine printed no `{title}`")
        if number > models:
            raise EngineLogError(f"{node}: the engine printed `{title}` {number} times, expected {models}")
    tokens = {int(match[1]) for match in caches}
    if len(tokens) > 1 or 0 in tokens:
        raise EngineLogError(
            f"{node}: the caches hold {' and '.join(map(str, sorted(tokens)))} tokens, expected one number"
        )
    kv = sum(float(size) for match in caches for size in match.groups()[1:] if size)
    if not kv:
        raise EngineLogError(f"{node}: the engine printed a cache of 0 GB")
    found = RankMemory(node, sum(weights), kv, tokens.pop())
    states = [line for line in lines if "Mamba Cache is allocated" in line]
    return replace(found, state=sum(float(size) for line in states for size in _SGLANG_STATE.findall(line)))
