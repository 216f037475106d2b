"""The memory that real models need, held against what the files weigh and what racks report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.engines.memory_fit import GIB, Demand, Parallel, default_parallel, fit, fits_on, weight_bytes
from core.engines.model_shape import ModelConfigError, ModelShape, parse, read

CONFIGS = Path(__file__).parent / "model_configs"
COUNTS = (1, 2, 3, 4, 8)
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


def shape(name: str, **changes: object) -> ModelShape:
    """The shape of a model of the folder, with some keys changed."""
    if not changes:
        return read(CONFIGS / name)
    return parse({**json.loads((CONFIGS / name / "config.json").read_text()), **changes}, name=name)


LLAMA_FP8, LLAMA_AWQ = shape("Llama-3.1-70B-Instruct-FP8"), shape("Meta-Llama-3.1-405B", **AWQ)
MODELS: dict[str, tuple[ModelShape, float, str, tuple[int, ...], str]] = {
    "gpt-oss-20b MXFP4": (shape("gpt-oss-20b"), 13.7, "bf16", (24, 16, 14, 12, 10), "yes yes yes yes yes"),
    "gpt-oss-120b MXFP4": (shape("gpt-oss-120b"), 65.2, "bf16", (73, 41, 30, 24, 16), "yes yes yes yes yes"),
    "Llama-3.3-70B FP8": (
        shape("Llama-3.1-70B-Instruct-FP8"),
        72.7,
        "fp8",
        (96, 52, 38, 30, 19),
        "yes yes yes yes yes",
    ),
    "Llama-3.3-70B BF16": (shape("Meta-Llama-3.1-70B"), 141, "bf16", (179, 94, 66, 51, 29), "no yes yes yes yes"),
    "Llama-3.1-405B AWQ": (
        shape("Meta-Llama-3.1-405B", **AWQ),
        217,
        "fp8",
        (242, 125, 87, 66, 37),
        "no no yes yes yes",
    ),
    "Qwen3-235B GPTQ": (shape("Qwen3-235B-A22B", **GPTQ), 124, "fp8", (135, 72, 52, 40, 25), "no yes yes yes no"),
    "Qwen3-235B NVFP4": (shape("Qwen3-235B-A22B-NVFP4"), 134, "fp8", (145, 76, 55, 42, 27), "no yes yes yes yes"),
    "Qwen3.5-122B NVFP4": (shape("Qwen3.5-122B-A10B-NVFP4"), 77.5, "fp8", (82, 45, 33, 27, 18), "yes yes yes yes yes"),
    "Qwen3.5-397B INT4": (shape("Qwen3.5-397B-A17B-NVFP4"), 220, "fp8", (215, 112, 78, 60, 35), "no no yes yes yes"),
    "Nemotron-3-Nano BF16": (
        shape("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        63,
        "bf16",
        (68, 38, 29, 23, 16),
        "yes yes yes yes yes",
    ),
    "Nemotron-3-Super NVFP4": (
        shape("NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
        72,
        "fp8",
        (76, 42, 32, 25, 17),
        "yes yes yes yes yes",
    ),
    "Nemotron-3-Ultra NVFP4": (
        shape("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4"),
        326,
        "fp8",
        (314, 161, 111, 85, 47),
        "no no no yes yes",
    ),
    "DeepSeek-V4-Flash": (shape("DeepSeek-V4-Flash"), 158, "fp8", (156, 82, 60, 46, 27), "no yes yes yes yes"),
    "GLM-5 FP8": (shape("GLM-5-FP8"), 747, "fp8", (711, 363, 243, 189, 102), "no no no no yes"),
    "GLM-5 NVFP4": (shape("GLM-5-NVFP4"), 442, "fp8", (426, 221, 148, 118, 66), "no no no no yes"),
    "MiniMax-M2.5 FP8": (shape("MiniMax-M2.5"), 230, "fp8", (238, 123, 86, 65, 37), "no no yes yes no"),
    "MiniMax-M2.5 NVFP4": (shape("MiniMax-M2.5-NVFP4"), 134, "fp8", (148, 78, 56, 43, 26), "no yes yes yes yes"),
    "Kimi-K2.5 INT4": (shape("Kimi-K2.5"), 594, "fp8", (565, 289, 201, 151, 81), "no no no no yes"),
    "Step-3.7-Flash FP8": (shape("Step-3.7-Flash-FP8"), 201, "fp8", (198, 103, 72, 56, 32), "no yes yes no no"),
}
"""By model: its shape, GB of its weight files, format of keys and values, GiB a node and verdict on 1, 2, 3, 4 and 8
nodes, for 131,072 tokens, 4 sequences and 8 GiB of overhead."""

BLOCKED = {
    ("Qwen3-235B GPTQ", 8): "the width 192 of an expert's slice at TP=8 is not divisible by the block of 128",
    ("MiniMax-M2.5 FP8", 8): "the width 192 of an expert's slice at TP=8 is not divisible by the block of 128",
    ("Step-3.7-Flash FP8", 4): "the width 320 of an expert's slice at TP=4 is not divisible by the block of 128",
    ("Step-3.7-Flash FP8", 8): "the width 160 of an expert's slice at TP=8 is not divisible by the block of 128",
}
"""A verdict that is no whatever the memory, and why."""


@pytest.mark.parametrize("name", MODELS)
def test_verdict_on_each_number_of_nodes(name: str) -> None:
    model, gigabytes, kv_format, totals, verdicts = MODELS[name]
    found = fits_on(model, Demand(kv_format="bf16" if kv_format == "bf16" else "fp8"), gigabytes * 1e9, COUNTS)
    assert [round(found[count].total) for count in COUNTS] == pytest.approx(list(totals), abs=1)
    assert [found[count].verdict for count in COUNTS] == verdicts.split()
    for count in COUNTS:
        if found[count].verdict == "no":
            assert found[count].reason.startswith(BLOCKED.get((name, count), "needs "))


COUNTED = {name: 0.05 if name.startswith("Nemotron-3-Ultra") else 0.04 for name in MODELS} | {"Qwen3.5-397B INT4": 0.08}
"""How far the counted weights may be from the files': the 397B files are INT4, the configuration here is NVFP4."""


@pytest.mark.parametrize("name", MODELS)
def test_weights_counted_from_the_configuration(name: str) -> None:
    model, gigabytes = MODELS[name][:2]
    assert weight_bytes(model) / 1e9 == pytest.approx(gigabytes, rel=COUNTED[name])


def test_weights_of_qwen3_235b_gptq_on_two_nodes_as_vllm_reported_them() -> None:
    """vLLM 0.19 printed 57.64 GiB a node for TP=2."""
    assert fit(MODELS["Qwen3-235B GPTQ"][0], Parallel(2, 1), Demand()).weights == pytest.approx(57.64, rel=0.02)


def test_kv_of_nemotron_ultra_on_eight_nodes_as_sglang_reported_it() -> None:
    """SGLang 0.5.12 printed 17.6 million tokens and 50.4 GB for each node at TP=8."""
    found = fit(MODELS["Nemotron-3-Ultra NVFP4"][0], Parallel(8, 1), Demand(context=17_600_000))
    assert found.kv == pytest.approx(50.4, rel=0.02)


def test_three_tensor_slices_are_refused_for_heads_that_are_not_divisible() -> None:
    found = fit(shape("Qwen3-235B-A22B"), Parallel(3, 1), Demand())
    assert found.verdict == "no"
    assert found.reason == (
        "64 attention heads are not divisible by TP=3; 4 key-value heads and TP=3 do not divide one another"
    )


def test_key_value_heads_stop_shrinking_below_one_each() -> None:
    model = shape("Qwen3-235B-A22B")
    per_token = {tensor: fit(model, Parallel(tensor, 1), Demand()).token_bytes for tensor in (2, 4, 8)}
    assert per_token[4] == per_token[2] / 2
    assert per_token[8] == per_token[4]


def test_a_latent_is_kept_whole_on_each_rank() -> None:
    model = shape("Kimi-K2.5")
    assert fit(model, Parallel(1, 1), Demand()).kv == fit(model, Parallel(8, 1), Demand()).kv


def test_tight_is_between_the_two_shares() -> None:
    model = shape("gpt-oss-120b")
    base = fit(model, Parallel(1, 1), Demand(overhead_gib=0)).total
    verdicts = [fit(model, Parallel(1, 1), Demand(overhead_gib=goal - base)).verdict for goal in (103, 106, 110)]
    assert verdicts == ["yes", "tight", "no"]


def test_tokens_that_are_left_fill_the_memory_up_to_the_highest_share() -> None:
    model, demand = shape("Qwen3-235B-A22B-NVFP4"), Demand()
    left = fit(model, Parallel(2, 1), demand).context_left
    full = fit(model, Parallel(2, 1), replace(demand, context=demand.context + left))
    assert full.verdict == "tight"
    assert full.context_left <= 1
    assert full.total * GIB == pytest.approx(0.9 * 121.69 * GIB)


def test_the_fullest_stage_has_the_rounded_up_layers_and_an_end() -> None:
    model = shape("Qwen3-235B-A22B")  # 94 layers in three stages: 32, 31, 31
    body = weight_bytes(model) - 2 * 151936 * 4096 * 2
    expected = (body * 32 / 94 + 151936 * 4096 * 2) / GIB
    assert fit(model, Parallel(1, 3), Demand()).weights == pytest.approx(expected)


def test_default_split() -> None:
    assert [str(default_parallel(count)) for count in (1, 2, 3, 4, 6, 8)] == [
        *("TP=1", "TP=2", "PP=3", "TP=4", "PP=6", "TP=8")
    ]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "num_hidden_layers is missing or is not a number"),
        ({"num_hidden_layers": 2, "hidden_size": 0, "num_attention_heads": 1, "vocab_size": 1}, "hidden_size"),
        ({"num_hidden_layers": 2, "hidden_size": "big"}, "hidden_size"),
        ({"num_hidden_layers": -2, "hidden_size": 8, "num_attention_heads": 1}, "num_hidden_layers"),
        ({"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        (
            {"num_hidden_layers": 1, "quantization_config": {"quant_method": "exotic"}},
            "exotic is not known",
        ),
    ],
)
def test_a_configuration_that_says_too_little_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ModelConfigError, match=words):
        parse(config)


def test_a_model_without_experts_and_window_may_say_so_by_zeros() -> None:
    assert shape("Meta-Llama-3.1-70B", num_experts=0, sliding_window=0) == shape("Meta-Llama-3.1-70B")


@pytest.mark.parametrize(
    ("content", "words"), [("{", "is not JSON"), ("[]", "is not a JSON object"), (None, "cannot be read")]
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelConfigError, match=words):
        read(tmp_path)
