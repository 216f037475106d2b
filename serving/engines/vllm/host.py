"""What options of vLLM take of the host's memory: 0.10.2 to 0.33.0. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from serving.engines.host_memory import GIB, LMCACHE_SIZE, HostMemory, Size, each, number, sized, unsized
from serving.engines.json_option import structured_value


def _divide_by_ranks(size: float, ranks: int) -> float:
    return size / ranks


def _double_size(size: float, _ranks: int) -> float:
    return 2 * size


SIZES: Mapping[str, Size] = {
    "cpu-offload-gb": each,
    "swap-space": each,  # vLLM 0.17.1 and before; for each GPU
    "kv-offloading-size": _divide_by_ranks,  # of all ranks together
    "mm-processor-cache-gb": _double_size,  # in the API's process and in the engine's
    "mm-ipc-gpu-memory-gb": each,
}
"""Options whose value is a size, with the GiB that it is on a node."""
UNKNOWN: Mapping[str, str] = {
    "offload-group-size": "keeps layers of the model in host memory",
    "max-cpu-loras": "keeps adapters in host memory",
    "ec-transfer-config": "has a cache of its own",
    "engram-config": "decides where tables of n-grams are kept",
}
"""Options that take host memory of a size that they do not say."""
_TRANSFER = "kv-transfer-config"
COUNTED = frozenset({*SIZES, *UNKNOWN, _TRANSFER, "kv-offloading-backend"})
"""Options that are looked at here."""


# claim: serving.memory-fit
def host_memory(args: Mapping[str, object], env: Mapping[str, str], ranks: int) -> HostMemory:
    """Return what options take on each node.

    Args:
        args: values by the long name of an option, without its dashes.
        env: environment of the engine.
        ranks: number of ranks, one on a node.
    """
    parts, unknown = sized(SIZES, args, ranks), unsized(UNKNOWN, args)
    for name, size, reason in _list_transfer_memory(args, env, ranks):
        parts, unknown = ({**parts, name: size}, unknown) if not reason else (parts, {**unknown, name: reason})
    return HostMemory(parts, unknown=unknown)


def _list_transfer_memory(
    args: Mapping[str, object], env: Mapping[str, str], ranks: int
) -> Iterator[tuple[str, float, str]]:
    """Yield the option, its GiB on a node, and why they are not known."""
    value = structured_value(args.get(_TRANSFER))
    config = value if isinstance(value, Mapping) else {}
    connector = str(config.get("kv_connector", ""))
    extra = config.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, Mapping) else {}
    if not connector:
        return
    if connector.startswith("LMCache") and "MP" not in connector:
        own = number(extra.get("lmcache.max_local_cpu_size")) or number(env.get(LMCACHE_SIZE)) or 5.0
        yield _TRANSFER, own, ""
    elif size := number(extra.get("cpu_bytes_to_use")):
        yield _TRANSFER, size / GIB / ranks, ""
    elif size := number(extra.get("kv_bytes_per_rank")):
        yield _TRANSFER, size / GIB, ""
    else:
        yield _TRANSFER, 0.0, f"{connector} can have a cache in host memory"
