"""The memory that real models need, held against what the files weigh and what racks report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serving.engines.memory_fit import GIB, Demand, Parallel, default_parallel, fit, fits_on, weight_bytes
from serving.engines.model_shape import ModelConfigError, ModelShape, parse, read

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
        ({"hybrid_override_pattern": 7}, "num_hidden_layers"),
    ],
)
def test_a_configuration_that_says_too_little_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ModelConfigError, match=words):
        parse({"model_type": "llama", **config})


PRINTED = {
    # vllm-project/recipes, Kimi-K2-Think.md: 46.80 GiB hold 715,072 tokens; K2.5 has the same attention.
    "Kimi-K2.5": (Parallel(8, 1), 46.80 * GIB / 715_072),
    # eugr/spark-vllm-docker#396: one sequence of 196,608 tokens needs 23.25 GiB on each of two GB10.
    "MiniMax-M2.5": (Parallel(2, 1), 23.25 * GIB / 196_608),
    # lightseekorg/tokenspeed#758: a page of 128 tokens has 5,799,936 bytes on each of four ranks.
    "MiniMax-M3": (Parallel(4, 1), 5_799_936 / 128),
}
"""Bytes of keys and values for each token on a rank, as engines printed them in BF16."""


@pytest.mark.parametrize("name", PRINTED)
def test_keys_and_values_are_those_that_an_engine_printed(name: str) -> None:
    parallel, printed = PRINTED[name]
    found = fit(shape(name), parallel, Demand(kv_format="bf16"))
    assert found.token_bytes == pytest.approx(printed, rel=0.001)
    assert found.unknown == {}


def test_gemma_4_has_other_heads_in_its_full_layers_and_windows_in_the_rest() -> None:
    """vLLM 0.29 reserves pages of 2,621,440 bytes for one sequence of 262,144 tokens: 9,797 with two batches of 2,048
    tokens in flight, 13,637 with two of 8,192 (a trace of its source, published by another planner)."""
    for in_flight, pages in ((4_096, 9_797), (16_384, 13_637)):
        found = fit(shape("gemma-4-31B"), Parallel(1, 1), Demand(262_144, 1, "bf16", in_flight=in_flight))
        assert found.token_bytes == 10 * 2 * 4 * 512 * 2
        assert found.kv * GIB == pytest.approx(pages * 2_621_440, rel=0.002)
    eight = fit(shape("gemma-4-31B"), Parallel(1, 1), Demand(262_144, 8, "bf16"))
    assert (round(eight.weights, 1), eight.verdict) == (57.2, "yes")
    assert eight.total == pytest.approx(92, rel=0.05)


TRACED: dict[str, tuple[dict[str, object], int]] = {
    "Qwen3.8-27B": (
        {
            "model_type": "qwen3_5_text",
            "num_hidden_layers": 64,
            "full_attention_interval": 4,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "hidden_size": 5120,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "intermediate_size": 17408,
            "vocab_size": 248320,
        },
        17_520_656_384,
    ),
    "Nemotron-3-Nano-30B": (
        json.loads((CONFIGS / "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16/config.json").read_text()),
        1_725_628_416,
    ),
}
"""Bytes that vLLM 0.29 reserves for one sequence of 262,144 tokens in BF16, by the same trace."""


@pytest.mark.parametrize("name", TRACED)
def test_keys_values_and_state_are_those_that_vllm_reserves(name: str) -> None:
    config, traced = TRACED[name]
    found = fit(parse(config), Parallel(1, 1), Demand(262_144, 1, "bf16"))
    assert (found.kv + found.state) * GIB == pytest.approx(traced, rel=0.05)


def test_an_engine_that_keeps_a_share_of_the_context_in_layers_with_a_window() -> None:
    model = shape("gpt-oss-120b")
    full, window = (fit(model, Parallel(1, 1), Demand(window_share=share)).kv for share in (1.0, 0.0))
    assert full == pytest.approx(2 * fit(model, Parallel(1, 1), Demand()).token_bytes * 131072 / GIB)
    half = fit(model, Parallel(1, 1), Demand(window_share=0.5)).kv
    assert window < half == pytest.approx(full * 0.75)


def test_the_layers_of_kimi_linear_that_keep_a_state_keep_no_keys() -> None:
    found = fit(shape("Kimi-Linear-48B-A3B"), Parallel(1, 1), Demand(1_000_000, 1, "bf16"))
    assert found.kv == pytest.approx(7.5, rel=0.01)  # 7 of 27 layers, 576 elements each
    assert found.state * GIB == 20 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2)


def test_a_sparse_attention_keeps_its_index_and_the_scales_of_its_latent() -> None:
    """vLLM's fp8_ds_mla is 656 bytes a layer, its index 132 (LMCache/LMCache#3339)."""
    assert fit(shape("GLM-5-FP8"), Parallel(8, 1), Demand()).token_bytes == 78 * (656 + 132)


PARAMETERS = {
    "gemma-4-31B": 30.7,
    "gemma-4-26B-A4B": 25.2,
    "MiniMax-M3": 428,
    "Kimi-Linear-48B-A3B": 48,
    "Llama-4-Maverick": 400,
}
"""Billions of parameters, as the owners of the models publish them."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_the_owner_publishes(name: str) -> None:
    assert sum(shape(name).parameters.values()) / 1e9 == pytest.approx(PARAMETERS[name], rel=0.03)


def test_embeddings_of_each_layer_are_weights() -> None:
    """5.1 billion with the towers for images and sound, which are not counted (0.45 billion)."""
    assert sum(shape("gemma-4-E2B").parameters.values()) / 1e9 == pytest.approx(5.1 - 0.45, rel=0.02)


def test_layers_that_use_the_cache_of_another_have_none_of_their_own() -> None:
    found = fit(shape("gemma-4-E2B"), Parallel(1, 1), Demand(100_000, 1, "bf16"))
    assert found.token_bytes == 3 * 2 * 1 * 512 * 2  # 7 full layers, of which the last 4 share


@pytest.mark.parametrize(
    ("changes", "weight"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128}}, 8 + 24 / 128),
        ({"quantization_config": {"quant_method": "auto-round", "bits": 2, "group_size": 128}}, 2 + 18 / 128),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int", "group_size": 128}}},
                }
            },
            8 + 16 / 128,
        ),
    ],
)
def test_the_bits_of_a_weight_are_those_of_the_configuration(changes: dict[str, object], weight: float) -> None:
    found = shape("Meta-Llama-3.1-405B", **changes)
    quantized = sum(found.parameters.values()) - found.parameters["embedding"] - found.parameters["head"]
    ends = 2 * (found.parameters["embedding"] + found.parameters["head"])
    assert weight_bytes(found) - ends == pytest.approx(quantized * weight / 8)


PLAIN = {
    "model_type": "llama",
    "num_hidden_layers": 60,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32000,
    "intermediate_size": 8192,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": ["full_attention"] * 3 + ["new_sparse_attention"] * 57}, "57 layers of the kind new_sparse"),
        ({"layer_types": ["compressed_sparse_attention"] * 60}, "60 layers of the kind compressed_sparse_attention"),
        ({"layer_types": ["minimax_m3_sparse"] * 60}, "the size of the index"),
        ({"model_type": "brand_new_attention"}, "the architecture brand_new_attention"),
        ({"model_type": None}, "an architecture without a name"),
        ({"engram_vocab_size": 1000}, "engram_vocab_size"),
        ({"dspark_block_size": 8}, "dspark_block_size"),
    ],
)
def test_a_kind_of_attention_that_is_not_known_is_unknown_and_not_nothing(
    changes: dict[str, object], words: str
) -> None:
    assert fit(parse(PLAIN), Parallel(1, 1), Demand()).verdict == "yes"
    found = fit(parse({**PLAIN, **changes}), Parallel(1, 1), Demand(), weights=20e9)
    assert found.verdict == "unknown"
    assert words in found.reason


@pytest.mark.parametrize(
    ("name", "weights", "reason"),
    [
        ("GLM-5.3-Flash", 182e9, "the architecture glm5_next is not one whose memory is known here"),
        ("DeepSeek-V4.1-Flash", 510_313_353_565, "the architecture deepseek_v41 is not one whose memory is known here"),
        ("Kimi-K3", 300e9, "the architecture kimi_k3 is not one whose memory is known here"),
    ],
)
def test_a_model_whose_published_figures_no_formula_meets_is_unknown(name: str, weights: float, reason: str) -> None:
    found = fit(shape(name), Parallel(8, 1), Demand(), weights)
    assert found.verdict == "unknown"
    assert found.weights == pytest.approx(weights / 8 / GIB)
    assert reason in found.reason
    one = fit(shape(name), Parallel(1, 1), Demand(), weights)
    assert one.verdict == "no", "the weights alone are too large"
    assert one.reason.startswith("needs more than ")


def test_deepseek_v4_is_known_as_it_was_reported_only() -> None:
    known = shape("DeepSeek-V4-Flash")
    assert fit(known, Parallel(2, 1), Demand()).unknown == {}
    for changes in ({"num_hidden_layers": 61}, {"dspark_block_size": 8}):
        assert fit(shape("DeepSeek-V4-Flash", **changes), Parallel(8, 1), Demand()).verdict == "unknown"
    assert fit(known, Parallel(2, 1), Demand(kv_format="nvfp4")).verdict == "unknown"


@pytest.mark.parametrize("method", ["exl3", "torchao", "bitsandbytes"])
def test_the_format_of_weights_is_not_needed_where_their_size_is_given(method: str) -> None:
    found = parse({**PLAIN, "quantization_config": {"quant_method": method}})
    without = fit(found, Parallel(1, 1), Demand())
    assert without.verdict == "unknown"
    assert without.reason == (
        f"the format {method} of the weights is not known here; give the size of all weight files with --weights"
    )
    assert fit(found, Parallel(1, 1), Demand(), weights=3e9).verdict == "yes"


def test_with_expert_parallelism_no_expert_is_cut_into_slices() -> None:
    model = shape("MiniMax-M2.5")
    assert "block of 128" in fit(model, Parallel(8, 1), Demand()).reason
    assert fit(model, Parallel(8, 1, expert=True), Demand()).verdict == "yes"
    heads = fit(model, Parallel(5, 1, expert=True), Demand())
    assert "48 attention heads are not divisible by TP=5" in heads.reason


def test_keys_and_values_in_four_bits_have_their_scales() -> None:
    model = shape("Qwen3-235B-A22B")
    eight = fit(model, Parallel(2, 1), Demand(kv_format="fp8")).token_bytes
    assert fit(model, Parallel(2, 1), Demand(kv_format="nvfp4")).token_bytes == eight * 9 / 16


def test_a_model_without_experts_and_window_may_say_so_by_zeros() -> None:
    assert shape("Meta-Llama-3.1-70B", num_experts=0, sliding_window=0) == shape("Meta-Llama-3.1-70B")


@pytest.mark.parametrize(
    ("content", "words"), [("{", "is not JSON"), ("[]", "is not a JSON object"), (None, "cannot be read")]
)
def test_a_file_that_is_not_a_configuration_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelConfigError, match=words):
        read(tmp_path)
