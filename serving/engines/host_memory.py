"""What the options of an engine take of the host's memory on each node. On a GB10 it is the memory of the GPU.

Sources: the options' descriptions of vLLM 0.10.2 to 0.33.0 and SGLang 0.5.4 to 0.5.23; serving/engines/options.json has
the releases of each option.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from serving.engines.option_table import Engine

GIB = 2**30
LMCACHE_SIZE = "LMCACHE_MAX_LOCAL_CPU_SIZE"
"""GiB that LMCache takes on each rank; 5 where it is not set (LMCache's documentation)."""
_HICACHE_RATIO = 2.0
"""SGLang's default size of the cache on the host, as a multiple of that on the GPU."""


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


_Part = tuple[str, float]
_Size = Callable[[float, int], float]


def _each(size: float, _ranks: int) -> float:
    return size


def _shared(size: float, ranks: int) -> float:
    return size / ranks


def _twice(size: float, _ranks: int) -> float:
    return 2 * size


def _mebibytes(size: float, _ranks: int) -> float:
    return size / 1024


def _gigabytes(size: float, _ranks: int) -> float:
    return size * 10**9 / GIB


SIZES: Mapping[Engine, Mapping[str, _Size]] = {
    "vllm": {
        "cpu-offload-gb": _each,
        "swap-space": _each,  # vLLM 0.17.1 and before; for each GPU
        "kv-offloading-size": _shared,  # of all ranks together
        "mm-processor-cache-gb": _twice,  # in the API's process and in the engine's
        "mm-ipc-gpu-memory-gb": _each,
    },
    "sglang": {
        "cpu-offload-gb": _each,
        "hicache-size": _gigabytes,
        "mm-preprocess-cache-size-mb": _mebibytes,
    },
}
"""Options whose value is a size, with the GiB that it is on a node."""
UNKNOWN: Mapping[Engine, Mapping[str, str]] = {
    "vllm": {
        "offload-group-size": "keeps layers of the model in host memory",
        "max-cpu-loras": "keeps adapters in host memory",
        "ec-transfer-config": "has a cache of its own",
        "engram-config": "decides where tables of n-grams are kept",
    },
    "sglang": {
        "offload-group-size": "keeps layers of the model in host memory",
        "lmcache-config-file": "has the size of a cache in host memory",
        "enable-mm-global-cache": "has a cache in host memory",
        "enable-draft-weights-cpu-backup": "keeps the weights of the draft once more",
        "kt-weight-path": "keeps experts in host memory",
        "kt-amx-weight-path": "keeps experts in host memory",
        "kt-num-gpu-experts": "keeps experts in host memory",
        "ple-offload-embedding": "keeps embeddings in host memory",
        "hierarchical-sparse-attention-extra-config": "has a cache in host memory",
    },
}
"""Options that take host memory of a size that they do not say."""
_HIERARCHICAL = ("enable-hierarchical-cache", "enable-hicache", "disaggregation-decode-enable-offload-kvcache")
_BACKUP = "enable-weights-cpu-backup"
_TRANSFER = "kv-transfer-config"
COUNTED: Mapping[Engine, frozenset[str]] = {
    "vllm": frozenset({*SIZES["vllm"], *UNKNOWN["vllm"], _TRANSFER, "kv-offloading-backend"}),
    "sglang": frozenset(
        {
            *SIZES["sglang"],
            *UNKNOWN["sglang"],
            *_HIERARCHICAL,
            _BACKUP,
            "enable-lmcache",
            "hicache-ratio",
            "hicache-storage-backend",
        }
    ),
}
"""Options that are looked at here."""


# claim: serving.memory-fit
def host_memory(engine: Engine, args: Mapping[str, object], env: Mapping[str, str], ranks: int) -> HostMemory:
    """Return what options take of the host's memory on each node.

    Args:
        engine: the engine.
        args: values by the long name of an option, without its dashes.
        env: environment of the engine.
        ranks: number of ranks, one on a node.
    """
    parts = {name: size(number, ranks) for name, size in SIZES[engine].items() if (number := _number(args.get(name)))}
    unknown = {name: reason for name, reason in UNKNOWN[engine].items() if _is_set(args.get(name))}
    if engine == "vllm":
        for name, size, reason in _transfer(args, env, ranks):
            parts, unknown = ({**parts, name: size}, unknown) if not reason else (parts, {**unknown, name: reason})
        return HostMemory(parts, unknown=unknown)
    caches = 0.0
    if any(_is_set(args.get(name)) for name in _HIERARCHICAL):
        caches = 0.0 if "hicache-size" in parts else _number(args.get("hicache-ratio")) or _HICACHE_RATIO
        if args.get("hicache-storage-backend") not in (None, "file"):
            unknown["hicache-storage-backend"] = "has a store in host memory"
    else:
        parts.pop("hicache-size", None)
    if _is_set(args.get("enable-lmcache")):
        parts["enable-lmcache"] = _number(env.get(LMCACHE_SIZE)) or 5.0
    return HostMemory(parts, caches, int(_is_set(args.get(_BACKUP))), unknown)


def _transfer(args: Mapping[str, object], env: Mapping[str, str], ranks: int) -> Iterator[tuple[str, float, str]]:
    """Yield the option, its GiB on a node, and why they are not known."""
    value = args.get(_TRANSFER)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = {}
    config = value if isinstance(value, Mapping) else {}
    connector = str(config.get("kv_connector", ""))
    extra = config.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, Mapping) else {}
    if not connector:
        return
    if connector.startswith("LMCache") and "MP" not in connector:
        own = _number(extra.get("lmcache.max_local_cpu_size")) or _number(env.get(LMCACHE_SIZE)) or 5.0
        yield _TRANSFER, own, ""
    elif size := _number(extra.get("cpu_bytes_to_use")):
        yield _TRANSFER, size / GIB / ranks, ""
    elif size := _number(extra.get("kv_bytes_per_rank")):
        yield _TRANSFER, size / GIB, ""
    else:
        yield _TRANSFER, 0.0, f"{connector} can have a cache in host memory"


def _number(value: object) -> float:
    if isinstance(value, bool):
        return 0.0
    try:
        found = float(value) if isinstance(value, int | float | str) else 0.0
    except ValueError:
        return 0.0
    return found if 0 < found < float("inf") else 0.0


def _is_set(value: object) -> bool:
    """Return whether an option is on, or has a value that turns something on."""
    return value not in (None, False, "", 0, -1, "0", "-1")
