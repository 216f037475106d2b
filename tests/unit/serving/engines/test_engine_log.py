"""Figures of memory from the lines of the engines, as the source of each release prints them."""

from __future__ import annotations

import re

import pytest

from serving.engines.registry import ENGINES
from serving.engines.start_memory import EngineLogError, RankMemory, StartLog

# vllm/v1/worker/gpu_model_runner.py, gpu/model_runner.py, gpu_worker.py and vllm/v1/core/kv_cache_utils.py
VLLM = {
    "0.10.2": """\
INFO 11-23 20:15:01 [gpu_model_runner.py:2338] Model loading took 57.6412 GiB and 312.123456 seconds
INFO 11-23 20:15:02 [gpu_worker.py:298] Available KV cache memory: 30.12 GiB
INFO 11-23 20:15:03 [kv_cache_utils.py:864] GPU KV cache size: 812,352 tokens
INFO 11-23 20:15:03 [kv_cache_utils.py:868] Maximum concurrency for 65,536 tokens per request: 12.40x
""",
    "0.13.0": """\
(Worker_TP0 pid=412) INFO 11-23 20:15:01 [gpu_model_runner.py:3660] Model loading took 57.6412 GiB memory and \
312.123456 seconds
(Worker_TP0 pid=412) INFO 11-23 20:15:02 [gpu_worker.py:375] Available KV cache memory: 30.12 GiB
(EngineCore_DP0 pid=300) INFO 11-23 20:15:03 [kv_cache_utils.py:1291] GPU KV cache size: 812,352 tokens
""",
    "0.19.1": """\
\x1b[0;36m(Worker_TP0 pid=412)\x1b[0;0m INFO 11-23 20:15:01 [gpu_model_runner.py:4820] Model loading took 57.64 GiB \
memory and 312.123456 seconds
\x1b[0;36m(Worker_TP0 pid=412)\x1b[0;0m INFO 11-23 20:15:02 [gpu_worker.py:436] Available KV cache memory: 30.12 GiB
\x1b[0;36m(EngineCore pid=300)\x1b[0;0m INFO 11-23 20:15:03 [kv_cache_utils.py:1319] GPU KV cache size: 812,352 tokens
""",
    "0.27.1, the second runner": """\
(Worker_TP0 pid=412) INFO 11-23 20:15:01 [model_runner.py:330] Model loading took 57.64 GiB and 312.123456 seconds
(Worker_TP0 pid=412) INFO 11-23 20:15:02 [gpu_worker.py:510] Available KV cache memory: 30.12 GiB
(EngineCore pid=300) INFO 11-23 20:15:03 [kv_cache_utils.py:1500] GPU KV cache size: 812,352 tokens
""",
    "0.33.0": """\
(Worker_TP0 pid=412) INFO 11-23 20:15:01 [gpu_model_runner.py:5089] Model loading took 57.64 GiB memory and \
312.123456 seconds
(Worker_TP0 pid=412) INFO 11-23 20:15:02 [gpu_worker.py:773] Available KV cache memory: 30.12 GiB
(EngineCore pid=300) INFO 11-23 20:15:03 [kv_cache_planning.py:1147] GPU KV cache size: 812,352 tokens, Maximum \
concurrency for 65,536 tokens per request: 12.40x
""",
}
# sglang/srt/model_executor/model_runner.py and sglang/srt/mem_cache/memory_pool.py
SGLANG = {
    "0.5.4": """\
[2026-11-23 20:15:01 TP0] Load weight end. type=NemotronHForCausalLM, dtype=torch.bfloat16, avail mem=70.10 GB, \
mem usage=38.04 GB.
[2026-11-23 20:15:02 TP0] KV Cache is allocated. #tokens: 17600000, K size: 25.20 GB, V size: 25.20 GB
""",
    "0.5.12, MLA": """\
[2026-11-23 20:15:01 TP0] Load weight end. elapsed=300.12 s, type=DeepseekV3ForCausalLM, quant=fp8, avail mem=70.10 \
GB, mem usage=38.04 GB.
[2026-11-23 20:15:02 TP0] KV Cache is allocated. #tokens: 17600000, KV size: 50.40 GB
""",
    "0.5.15": """\
[2026-11-23 20:15:01 TP0] Load weight end. elapsed=300.12 s, type=NemotronHForCausalLM, avail mem=70.10 GB, \
mem usage=38.04 GB.
[2026-11-23 20:15:02 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 17600000, K size: 25.20 GB, \
V size: 25.20 GB
""",
    "0.5.23, resized after its graphs": """\
[2026-11-23 20:15:01 TP0] Load weight end. elapsed=300.12 s, type=NemotronHForCausalLM, avail mem=70.10 GB, \
mem usage=38.04 GB.
[2026-11-23 20:15:02 TP0] KV Cache VA upper bound. dtype: torch.float8_e4m3fn, #tokens: 19000000, K size: 27.20 GB, \
V size: 27.20 GB
[2026-11-23 20:15:05 TP0] Post-capture KV sizing: full_layer_tokens=17600000, swa_layer_tokens=0
[2026-11-23 20:15:05 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.float8_e4m3fn, #tokens: 17600000, \
KV size: 50.40 GB, avail mem=12.20 GB
""",
}
MAMBA = """\
[2026-11-23 20:15:02 TP0] Mamba Cache is allocated. max_mamba_cache_size: 96, conv_state size: 0.25GB, ssm_state \
size: 3.50GB intermediate_ssm_state_cache size: 1.00GB intermediate_conv_window_cache size: 0.25GB \n"""
DRAFT = """\
[2026-11-23 20:15:03 TP0] Load weight end. type=NemotronHMTP, dtype=torch.bfloat16, avail mem=20.10 GB, \
mem usage=1.50 GB.
[2026-11-23 20:15:03 TP0] KV Cache is allocated. #tokens: 17600000, K size: 0.30 GB, V size: 0.30 GB
"""
RAY = """\
(EngineCore pid=100) INFO 11-23 20:15:00 [ray_utils.py:300] started
\x1b[36m(EngineCore pid=100)\x1b[0;0m \x1b[36m(RayWorkerWrapper pid=4007, ip=10.77.0.12)\x1b[0m INFO 11-23 20:15:01 \
[gpu_model_runner.py:4820] Model loading took 57.64 GiB memory and 312.123456 seconds
\x1b[36m(EngineCore pid=100)\x1b[0;0m \x1b[36m(RayWorkerWrapper pid=311)\x1b[0m INFO 11-23 20:15:01 \
[gpu_model_runner.py:4820] Model loading took 57.71 GiB memory and 299.000001 seconds
(EngineCore pid=100) (RayWorkerWrapper pid=4007, ip=10.77.0.12) INFO 11-23 20:15:02 [gpu_worker.py:436] Available KV \
cache memory: 30.12 GiB
(EngineCore pid=100) (RayWorkerWrapper pid=311) INFO 11-23 20:15:02 [gpu_worker.py:436] Available KV cache memory: \
29.80 GiB
(EngineCore pid=100) INFO 11-23 20:15:03 [kv_cache_utils.py:1319] GPU KV cache size: 803,712 tokens
"""


def start_log(engine: str) -> StartLog:
    found = ENGINES[engine].log
    assert found
    return found


def read(engine: str, *logs: str, stages: int = 1, drafts: bool = False) -> RankMemory:
    return start_log(engine).fullest({f"n{rank}": log for rank, log in enumerate(logs)}, stages, drafts)


def only(engine: str, log: str) -> str:
    """What a node sends of a log: the lines that match."""
    pattern = start_log(engine).lines
    return "".join(line for line in log.splitlines(keepends=True) if re.search(pattern, line))


@pytest.mark.parametrize("release", VLLM)
def test_vllm(release: str) -> None:
    found = read("vllm", only("vllm", VLLM[release]))
    assert (round(found.weights, 2), found.kv, found.kv_tokens, found.state) == (57.64, 30.12, 812352, 0)


def test_the_rank_of_vllm_with_the_least_room_is_the_fullest() -> None:
    head = VLLM["0.19.1"]
    other = head.replace("30.12", "28.50").replace("57.64", "57.60").rpartition("\x1b[0;36m(EngineCore")[0]
    assert read("vllm", head, other) == RankMemory("n1", 57.60, 28.50, 812352)
    assert read("vllm", head, other.replace("28.50", "31.00")) == RankMemory("n0", 57.64, 30.12, 812352)


def test_stages_of_vllm_share_the_smallest_number_of_tokens() -> None:
    more = VLLM["0.10.2"] + "INFO 11-23 20:15:03 [kv_cache_utils.py:864] GPU KV cache size: 700,000 tokens\n"
    assert read("vllm", more, VLLM["0.10.2"], stages=2).kv_tokens == 700000
    with pytest.raises(EngineLogError, match="n0: the engine printed 2 sizes of its cache, expected 1"):
        read("vllm", more)


def test_ray_prints_all_ranks_on_the_head() -> None:
    assert read("vllm-ray", only("vllm-ray", RAY), "") == RankMemory("n0: pid=311", 57.71, 29.80, 803712)
    assert read("vllm-ray", only("vllm-ray", VLLM["0.19.1"])) == RankMemory("n0", 57.64, 30.12, 812352)


@pytest.mark.parametrize(
    "log",
    [
        RAY.replace("299.000001 seconds", "299.000001 seconds [repeated 2x across cluster]"),
        "".join(line for line in RAY.splitlines(keepends=True) if "pid=4007" not in line),
    ],
)
def test_ray_that_leaves_out_lines_is_refused(log: str) -> None:
    with pytest.raises(EngineLogError, match='write RAY_DEDUP_LOGS: "0" under env'):
        read("vllm-ray", log, "")


@pytest.mark.parametrize("release", SGLANG)
def test_sglang(release: str) -> None:
    assert read("sglang", only("sglang", SGLANG[release])) == RankMemory("n0", 38.04, 50.40, 17600000)


def test_the_state_of_mamba_layers_is_apart() -> None:
    assert read("sglang", only("sglang", SGLANG["0.5.4"] + MAMBA)).state == 5.0


def test_a_model_that_drafts_is_added() -> None:
    found = read("sglang", only("sglang", SGLANG["0.5.4"] + DRAFT), drafts=True)
    assert (round(found.weights, 2), round(found.kv, 2), found.kv_tokens) == (39.54, 51.0, 17600000)
    assert read("sglang", SGLANG["0.5.4"], drafts=True).weights == 38.04, "a drafter without weights"
    with pytest.raises(EngineLogError, match="printed `Load weight end` 2 times, expected 1"):
        read("sglang", SGLANG["0.5.4"] + DRAFT)


def test_the_rank_of_sglang_that_took_most_is_the_fullest() -> None:
    lighter = SGLANG["0.5.4"].replace("38.04", "37.00").replace("TP0", "TP1")
    assert read("sglang", lighter, SGLANG["0.5.4"]).rank == "n1"
    assert read("sglang", SGLANG["0.5.4"], lighter).rank == "n0"


@pytest.mark.parametrize(
    ("launcher", "log", "reason"),
    [
        ("vllm", "", "n0: the engine printed no `GPU KV cache size`"),
        (
            "vllm",
            VLLM["0.19.1"].replace("Available KV", "Some"),
            "n0: the engine printed no `Available KV cache memory`",
        ),
        ("vllm", VLLM["0.19.1"].replace("30.12", "-1.12"), "n0: the engine printed no `Available KV cache memory`"),
        ("vllm", VLLM["0.19.1"].replace("took", "takes"), "n0: the engine printed no `Model loading took`"),
        ("vllm", VLLM["0.33.0"].replace("GPU KV", "GPU + host KV"), "n0: the engine printed no `GPU KV cache size`"),
        (
            "vllm",
            VLLM["0.19.1"] + VLLM["0.19.1"].replace("57.64", "12.00"),
            "n0: the engine printed `Model loading took` with 12.00 and 57.64 GiB",
        ),
        ("sglang", "", "n0: the engine printed no `Load weight end`"),
        ("sglang", SGLANG["0.5.4"].splitlines()[0], "n0: the engine printed no `KV Cache is allocated`"),
        (
            "sglang",
            "\n".join(SGLANG["0.5.23, resized after its graphs"].splitlines()[:2]),
            "n0: the engine printed no `KV Cache is allocated`",
        ),
        ("sglang", SGLANG["0.5.4"] * 2, "n0: the engine printed `Load weight end` 2 times, expected 1"),
        (
            "sglang",
            SGLANG["0.5.4"] + SGLANG["0.5.4"].splitlines()[1],
            "n0: the engine printed `KV Cache is allocated` 2 times, expected 1",
        ),
        ("sglang", SGLANG["0.5.4"].replace("25.20", "0.00"), "n0: the engine printed a cache of 0 GB"),
    ],
)
def test_lines_that_are_missing_or_contradict_each_other_are_refused(launcher: str, log: str, reason: str) -> None:
    with pytest.raises(EngineLogError, match=re.escape(reason)):
        read(launcher, log)


def test_caches_of_different_numbers_of_tokens_are_refused() -> None:
    with pytest.raises(EngineLogError, match="the caches hold 9 and 17600000 tokens, expected one number"):
        read("sglang", SGLANG["0.5.4"] + DRAFT.replace("17600000", "9"), drafts=True)
