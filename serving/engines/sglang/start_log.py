"""What SGLang prints of its memory at its start: 0.5.4 to 0.5.23 print what they allocated. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from serving.engines.start_memory import NUMBER, EngineLogError, RankMemory, StartLog, found_values

_WEIGHTS = re.compile(rf"Load weight end\. .*\bmem usage={NUMBER} GB")
_KV = re.compile(
    r"KV Cache is allocated\. .*#tokens: ([0-9]+), "
    rf"(?:K size: {NUMBER} GB, V size: {NUMBER} GB|KV size: {NUMBER} GB)"
)
_RESIZED = re.compile(
    rf"Post-capture KV sizing: (?:draft )?KV cache allocated\. .*#tokens: ([0-9]+), KV size: {NUMBER} GB()()"
)
_BOUND = "VA upper bound"
"""In a line of a cache that later gets its final size, in SGLang 0.5.18 and later."""
_STATE = re.compile(rf" size: {NUMBER}GB")


def fullest(logs: Mapping[str, str], _stages: int, drafts: bool) -> RankMemory:
    """Return the memory of the rank that took most: each allocates the tokens that the fullest one has room for."""
    ranks = [_read_rank_memory(node, text.splitlines(), drafts=drafts) for node, text in logs.items()]
    return max(ranks, key=lambda rank: rank.weights + rank.kv + rank.state)


def _read_rank_memory(node: str, lines: list[str], *, drafts: bool) -> RankMemory:
    models = 2 if drafts else 1
    weights = [float(found) for found in found_values(lines, _WEIGHTS)]
    bound = any(_BOUND in line for line in lines)
    caches = [match for line in lines if (match := (_RESIZED if bound else _KV).search(line))]
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
    return replace(found, state=sum(float(size) for line in states for size in _STATE.findall(line)))


LOG = StartLog("Load weight end|KV Cache |Mamba Cache |KV cache allocated", fullest)
