"""What the options of an engine take of the host's memory on each node. On a GB10 it is the memory of the GPU. Pure.

Each engine has host.py for its own options: their descriptions in the releases of its options.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

GIB = 2**30
LMCACHE_SIZE = "LMCACHE_MAX_LOCAL_CPU_SIZE"
"""GiB that LMCache takes on each rank; 5 where it is not set (LMCache's documentation)."""
Size = Callable[[float, int], float]
"""GiB on a node, from the value of an option and the number of ranks."""


@dataclass(frozen=True)
class HostMemory:
    """Host memory that an engine takes on each node, beside its share.

    `parts`: GiB by option. `caches`: multiples of the cache on the GPU. `copies`: of all weights of the node.
    `unknown`: why the amount of an option is not known, by option.
    """

    parts: Mapping[str, float] = field(default_factory=dict)
    caches: float = 0.0
    copies: int = 0
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def gib(self) -> float:
        """GiB of the options that give a size."""
        return sum(self.parts.values())


def each(size: float, _ranks: int) -> float:
    """Return a size that is given for each rank."""
    return size


def number(value: object) -> float:
    """Return a number above 0, 0 for anything else."""
    if isinstance(value, bool):
        return 0.0
    try:
        found = float(value) if isinstance(value, int | float | str) else 0.0
    except ValueError:
        return 0.0
    return found if 0 < found < float("inf") else 0.0


def is_set(value: object) -> bool:
    """Return whether an option is on, or has a value that turns something on."""
    return value not in (None, False, "", 0, -1, "0", "-1")


def sized(sizes: Mapping[str, Size], args: Mapping[str, object], ranks: int) -> dict[str, float]:
    """Return the GiB of each option that gives a size."""
    return {name: size(found, ranks) for name, size in sizes.items() if (found := number(args.get(name)))}


def unsized(reasons: Mapping[str, str], args: Mapping[str, object]) -> dict[str, str]:
    """Return why the amount of an option is not known, by the options that are set."""
    return {name: reason for name, reason in reasons.items() if is_set(args.get(name))}


def none(_args: Mapping[str, object], _env: Mapping[str, str], _ranks: int) -> HostMemory:
    """Return what an engine without such options takes."""
    return HostMemory()
