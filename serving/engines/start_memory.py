"""What an engine prints of its memory at its start: weights, and the cache of keys and values. Pure.

Each engine reads its own lines. Both vLLM and SGLang count in units of 2^30 bytes; SGLang calls them GB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

NUMBER = r"([0-9]+(?:\.[0-9]+)?)"


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


@dataclass(frozen=True)
class StartLog:
    """How the memory of an engine is read from its log.

    `lines`: an extended regular expression for the lines that are read. `fullest`: returns the memory of the fullest
    rank, from what the engine printed at one start, by node in rank order; into how many stages the layers are split;
    and whether a second, smaller model drafts tokens. Raises EngineLogError when lines are missing, or contradict each
    other.
    """

    lines: str
    fullest: Callable[[Mapping[str, str], int, bool], RankMemory]


def found_values(lines: list[str], pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the first group of a pattern in each line that has it."""
    for line in lines:
        if match := pattern.search(line):
            yield match[1]
