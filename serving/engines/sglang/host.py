"""What options of SGLang take of the host's memory: 0.5.4 to 0.5.23. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from serving.engines.host_memory import GIB, LMCACHE_SIZE, HostMemory, Size, each, is_set, number, sized, unsized

_HICACHE_RATIO = 2.0
"""The default size of the cache on the host, as a multiple of that on the GPU."""


def _mebibytes_to_gib(size: float, _ranks: int) -> float:
    return size / 1024


def _gigabytes_to_gib(size: float, _ranks: int) -> float:
    return size * 10**9 / GIB


SIZES: Mapping[str, Size] = {
    "cpu-offload-gb": each,
    "hicache-size": _gigabytes_to_gib,
    "mm-preprocess-cache-size-mb": _mebibytes_to_gib,
}
"""Options whose value is a size, with the GiB that it is on a node."""
UNKNOWN: Mapping[str, str] = {
    "offload-group-size": "keeps layers of the model in host memory",
    "lmcache-config-file": "has the size of a cache in host memory",
    "enable-mm-global-cache": "has a cache in host memory",
    "enable-draft-weights-cpu-backup": "keeps the weights of the draft once more",
    "kt-weight-path": "keeps experts in host memory",
    "kt-amx-weight-path": "keeps experts in host memory",
    "kt-num-gpu-experts": "keeps experts in host memory",
    "ple-offload-embedding": "keeps embeddings in host memory",
    "hierarchical-sparse-attention-extra-config": "has a cache in host memory",
}
"""Options that take host memory of a size that they do not say."""
_HIERARCHICAL = ("enable-hierarchical-cache", "enable-hicache", "disaggregation-decode-enable-offload-kvcache")
_BACKUP = "enable-weights-cpu-backup"
COUNTED = frozenset(
    {*SIZES, *UNKNOWN, *_HIERARCHICAL, _BACKUP, "enable-lmcache", "hicache-ratio", "hicache-storage-backend"}
)
"""Options that are looked at here."""


def host_memory(args: Mapping[str, object], env: Mapping[str, str], ranks: int) -> HostMemory:
    """Return what options take on each node. Same arguments as those of vLLM."""
    parts, unknown = sized(SIZES, args, ranks), unsized(UNKNOWN, args)
    caches = 0.0
    if any(is_set(args.get(name)) for name in _HIERARCHICAL):
        caches = 0.0 if "hicache-size" in parts else number(args.get("hicache-ratio")) or _HICACHE_RATIO
        if args.get("hicache-storage-backend") not in (None, "file"):
            unknown["hicache-storage-backend"] = "has a store in host memory"
    else:
        parts.pop("hicache-size", None)
    if is_set(args.get("enable-lmcache")):
        parts["enable-lmcache"] = number(env.get(LMCACHE_SIZE)) or 5.0
    return HostMemory(parts, caches, int(is_set(args.get(_BACKUP))), unknown)
