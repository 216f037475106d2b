"""What the options of an engine take of the host's memory, which is the memory of the GPU on a GB10."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from serving.engines.host_memory import HostMemory
from serving.engines.option_table import Engine, table
from serving.engines.registry import FAMILIES
from serving.engines.sglang import host as sglang_host
from serving.engines.vllm import host as vllm_host

GIB = 2**30
COUNTED: dict[Engine, frozenset[str]] = {"vllm": vllm_host.COUNTED, "sglang": sglang_host.COUNTED}
OFFLOAD = {"kv_connector": "OffloadingConnector"}


def host_memory(engine: Engine, args: Mapping[str, object], env: Mapping[str, str], ranks: int) -> HostMemory:
    return FAMILIES[engine].host(args, env, ranks)


@pytest.mark.parametrize(
    ("engine", "args", "env", "gib"),
    [
        ("vllm", {}, {}, 0),
        ("vllm", {"cpu-offload-gb": 40}, {}, 40),
        ("vllm", {"cpu-offload-gb": "40"}, {}, 40),
        ("vllm", {"swap-space": 64}, {}, 64),
        ("vllm", {"kv-offloading-size": 60}, {}, 30),
        ("vllm", {"mm-processor-cache-gb": 4}, {}, 8),
        ("vllm", {"cpu-offload-gb": 10, "swap-space": 4}, {}, 14),
        ("vllm", {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}}, {}, 5),
        (
            "vllm",
            {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}},
            {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"},
            20,
        ),
        (
            "vllm",
            {"kv-transfer-config": {**OFFLOAD, "kv_connector_extra_config": {"cpu_bytes_to_use": 8 * GIB}}},
            {},
            4,
        ),
        ("sglang", {"cpu-offload-gb": 40}, {}, 40),
        ("sglang", {"hicache-size": 32}, {}, 0),
        ("sglang", {"enable-hierarchical-cache": True, "hicache-size": 32}, {}, 32e9 / GIB),
        ("sglang", {"enable-hierarchical-cache": True, "hicache-size": 32, "hicache-ratio": 3.0}, {}, 32e9 / GIB),
        ("sglang", {"enable-lmcache": True}, {}, 5),
        ("sglang", {"mm-preprocess-cache-size-mb": 2048}, {}, 2),
        ("vllm", {"mm-ipc-gpu-memory-gb": 3}, {}, 3),
        ("vllm", {"cpu-offload-gb": True, "swap-space": -1, "kv-offloading-size": "many"}, {}, 0),
        ("vllm", {"cpu-offload-gb": float("inf"), "swap-space": [4]}, {}, 0),
        ("vllm", {"kv-transfer-config": "{"}, {}, 0),
        ("vllm", {"kv-transfer-config": {"kv_connector": ""}}, {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"}, 0),
        (
            "vllm",
            {
                "kv-transfer-config": {
                    "kv_connector": "LMCacheConnectorV1",
                    "kv_connector_extra_config": {"lmcache.max_local_cpu_size": 7},
                }
            },
            {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"},
            7,
        ),
        (
            "vllm",
            {"kv-transfer-config": {**OFFLOAD, "kv_connector_extra_config": {"kv_bytes_per_rank": 8 * GIB}}},
            {},
            8,
        ),
        ("sglang", {"enable-lmcache": True}, {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"}, 20),
        ("sglang", {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}}, {}, 0),
    ],
)
def test_a_size_in_an_option_is_host_memory_of_each_of_two_nodes(
    engine: Engine, args: dict[str, Any], env: dict[str, str], gib: float
) -> None:
    found = host_memory(engine, args, env, 2)
    assert found.gib == pytest.approx(gib)
    assert (found.unknown, found.caches) == ({}, 0)


@pytest.mark.parametrize(
    ("args", "caches"),
    [
        ({"enable-hierarchical-cache": True}, 2.0),
        ({"enable-hicache": True, "hicache-ratio": 1.5}, 1.5),
        ({"disaggregation-decode-enable-offload-kvcache": True}, 2.0),
        ({"enable-hierarchical-cache": False, "hicache-ratio": 1.5}, 0.0),
    ],
)
def test_a_cache_on_the_host_is_a_multiple_of_that_on_the_gpu(args: dict[str, Any], caches: float) -> None:
    assert host_memory("sglang", args, {}, 2).caches == caches


def test_a_copy_of_the_weights_is_counted() -> None:
    assert host_memory("sglang", {"enable-weights-cpu-backup": True}, {}, 2).copies == 1


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", {"offload-group-size": 8}),
        ("vllm", {"kv-transfer-config": {"kv_connector": "MooncakeStoreConnector"}}),
        ("vllm", {"kv-transfer-config": '{"kv_connector":"NixlConnector"}'}),
        ("sglang", {"kt-num-gpu-experts": 8}),
        ("sglang", {"enable-hierarchical-cache": True, "hicache-storage-backend": "mooncake"}),
    ],
)
def test_an_option_that_takes_host_memory_without_a_size_is_unknown_and_not_nothing(
    engine: Engine, args: dict[str, Any]
) -> None:
    assert set(host_memory(engine, args, {}, 2).unknown) & set(args)


@pytest.mark.parametrize(
    ("engine", "args", "reason"),
    [
        *(("vllm", {name: "x"}, reason) for name, reason in vllm_host.UNKNOWN.items()),
        *(("sglang", {name: "x"}, reason) for name, reason in sglang_host.UNKNOWN.items()),
        ("vllm", {"kv-transfer-config": {"kv_connector": "X"}}, "X can have a cache in host memory"),
        (
            "vllm",
            {"kv-transfer-config": {"kv_connector": "LMCacheMPConnector"}},
            "LMCacheMPConnector can have a cache in host memory",
        ),
        ("vllm", {"kv-transfer-config": {**OFFLOAD, "kv_connector_extra_config": 5}}, "OffloadingConnector can have"),
        ("sglang", {"enable-hicache": True, "hicache-storage-backend": "mooncake"}, "has a store in host memory"),
    ],
)
def test_the_reason_says_what_takes_memory_of_an_unknown_size(
    engine: Engine, args: dict[str, Any], reason: str
) -> None:
    found = host_memory(engine, args, {}, 2)
    (name,) = found.unknown
    assert name in args
    assert found.unknown[name].startswith(reason)
    assert found.gib == 0


@pytest.mark.parametrize("value", [None, False, "", 0, -1, "0", "-1"])
def test_a_value_that_turns_nothing_on_takes_nothing(value: object) -> None:
    for engine in ("vllm", "sglang"):
        args = {name: value for name in COUNTED[engine] if name not in ("kv-transfer-config", "hicache-ratio")}
        assert host_memory(engine, args, {}, 2) == HostMemory()
    assert host_memory("sglang", {"enable-hicache": True, "hicache-storage-backend": "file"}, {}, 2).unknown == {}


def test_an_option_that_is_off_takes_nothing() -> None:
    assert host_memory("sglang", {"offload-group-size": -1, "enable-lmcache": False}, {}, 2).unknown == {}


TAKES_NONE: dict[Engine, frozenset[str]] = {
    "vllm": frozenset(
        [
            "device-memory-utilization",
            "gpu-memory-utilization",
            "kv-cache-memory-bytes",
            "weight-transfer-config",
            "cpu-distributed-timeout-seconds",
            "cpu-offload-params",
            "offload-backend",
            "offload-num-in-group",
            "offload-params",
            "offload-prefetch-step",
            "disable-shm-tensor-arena",
            "enable-shm-tensor-arena",
            "no-enable-shm-tensor-arena",
            "mm-shm-cache-max-object-size-mb",
            "sleep-mode-offload-cudagraph",
            "no-sleep-mode-offload-cudagraph",
        ]
    ),
    "sglang": frozenset(
        [
            "disable-hicache-numa-detect",
            "disable-hybrid-swa-memory",
            "enable-memory-saver",
            "enable-unified-memory",
            "disaggregation-decode-host-receive-threshold",
            "hicache-host-memory-fraction",
            "hicache-host-memory-mode",
            "hicache-io-backend",
            "hicache-mem-layout",
            "hicache-storage-backend-extra-config",
            "hicache-storage-prefetch-policy",
            "hicache-storage-prefetch-retry-max-attempts",
            "hicache-storage-prefetch-retry-poll-interval",
            "hicache-write-policy",
            "kt-amx-method",
            "kt-cpuinfer",
            "kt-max-deferred-experts-per-token",
            "kt-method",
            "kt-threadpool-count",
            "mamba-full-memory-ratio",
            "offload-mode",
            "offload-num-in-group",
            "offload-prefetch-step",
            "no-ple-offload-embedding",
            "ple-offload-backend",
            "ple-offload-dir",
            "sm-group-num",
            "disaggregation-transfer-backend",
            "mm-global-cache-backend",
        ]
    ),
}
"""Options with such a name that say where, how or how fast, and take nothing themselves."""
_NAMES = re.compile(
    r"--(.*(offload|swap-space|hicache|host-memory|cpu-backup|memory|lmcache|shm-|transfer-config|mm-.*cache.*b$).*|kt-.*)"
)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_option_of_a_release_that_sounds_of_host_memory_is_judged(engine: Engine) -> None:
    """An option of a new release must be put in one of the lists."""
    names = {name.removeprefix("--") for name in table(engine).options if _NAMES.fullmatch(name)}
    assert names - COUNTED[engine] - TAKES_NONE[engine] == set()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_option_that_is_counted_is_one_of_a_release(engine: Engine) -> None:
    assert {name for name in COUNTED[engine] if f"--{name}" not in table(engine).options} == set()
