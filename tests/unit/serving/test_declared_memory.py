"""Whether what a unit declares fits into the memory of its nodes, by the model and by what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import load
from serving.engines.memory_fit import Parallel
from serving.engines.model_shape import read
from serving.fit import unit_fit
from serving.options import served_units
from sparkrack.check.check_rack_file import check_rack_file
from sparkrack.serving.check_units import check_units
from tests.unit.model.serving_racks import (
    CONFIGS,
    MEASURED_WITH,
    SGLANG,
    loaded,
    machines,
    put,
    record,
    refusals,
    text,
)
from tests.unit.serving.declared_units import QWEN_SIZE, RECORDS, P, nemotron, notes, qwen


def test_an_engine_leaves_the_host_what_it_needs() -> None:
    memory = {"floor": "8G", "min_free_kbytes": 1572864}
    assert refusals(text(qwen(memory=0.88), memory=memory)) == []
    assert refusals(text(qwen(memory=0.89), memory=memory)) == [
        (
            f"{P}.memory @ memory: 0.89 leaves 13.4 GiB for the host, which needs 13.5 (memory.floor 8.0, "
            "memory.min_free_kbytes 1.5, system 4); write at most 0.88"
        )
    ]
    assert refusals(text(qwen(memory=0.89), memory=memory, leave=["memory"])) == []


def test_a_crash_kernel_takes_its_memory_from_engine_and_host() -> None:
    """What fits without it is refused at load with it, and the message names its key."""
    memory, kdump = {"floor": "9G", "min_free_kbytes": 1572864}, {"kdump": {"reserve": "4G"}}
    assert refusals(text(qwen(memory=0.88), memory=memory)) == []
    assert refusals(text(qwen(memory=0.88), memory=memory, blackbox={"kdump": False})) == []
    assert refusals(text(qwen(memory=0.88), memory=memory, blackbox=kdump)) == [
        (
            f"{P}.memory @ memory: 0.88 leaves 14.1 GiB for the host, which needs 14.5 (memory.floor 9.0, "
            "memory.min_free_kbytes 1.5, system 4); write at most 0.87"
        )
    ]
    units = qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})
    assert refusals(text(units), RECORDS) == []
    assert refusals(text(units, blackbox={}), RECORDS) == []
    (found,) = refusals(text(units, blackbox=kdump), RECORDS)
    assert (
        "and 0.57 of 117.69 GiB (of 121.69, blackbox.kdump reserves 4.00) is 67.1; write at least 0.59, or a shorter"
        in found
    )


@pytest.mark.parametrize(
    ("config", "parallel", "nodes", "expected"),
    [
        ("Qwen3-235B-A22B", {"tensor": 3}, 3, "64 attention heads are not divisible by TP=3"),
        ("Qwen3-235B-A22B", {"tensor": 3}, 3, "4 key-value heads and TP=3 do not divide one another"),
        (
            "MiniMax-M2.5",
            {"tensor": 8},
            8,
            "the width 192 of an expert's slice at TP=8 is not divisible by the block of 128",
        ),
    ],
)
def test_a_split_that_the_model_refuses_is_refused(
    config: str, parallel: dict[str, int], nodes: int, expected: str
) -> None:
    units = qwen(parallel=parallel, nodes="all", args={"kv-cache-dtype": "fp8"})
    found = refusals(text(units, machines(nodes)), {"qwen": record(config, 100 * 10**9)})
    assert f"{P}.parallel @ parallel: {expected}; write another split; it fits on " in "\n".join(found)
    assert refusals(text(units, machines(nodes)), {}) == []


def test_a_model_that_does_not_fit_is_refused_with_the_sum() -> None:
    large = {"qwen": record("Qwen3-235B-A22B", 230 * 10**9)}
    keys: dict[str, Any] = {"args": {"kv-cache-dtype": "fp8"}, "context": 131072}
    assert refusals(text(qwen(**keys), machines(4)), large) == [
        (
            f"{P}.memory @ memory: qwen needs 121.0 GiB a node (weights 107.1, keys and values 5.9, overhead 8.0), and "
            "0.80 of 121.69 GiB is 97.4; write a shorter context, or fewer sequences; it fits on 3, 4, 5, 6, 7, "
            "8 nodes; "
            "or give the reason why it does at fit.override"
        )
    ]
    assert refusals(text(qwen(**keys, fit={"override": "seen to run"}), machines(4)), large) == []


@pytest.mark.parametrize("change", [{"source": "owner/before"}, {"chosen": ["*.gguf"]}, {"requested": "v1"}])
def test_a_record_of_what_rack_yaml_declared_before_refuses_nothing_and_counts_for_no_sum(
    change: dict[str, Any], tmp_path: Path
) -> None:
    """`sparkrack apply` lists the files of the model again, which a refusal would prevent."""
    large = record("Qwen3-235B-A22B", 900 * 10**9)
    file = text(qwen())
    assert any("weights 419.1" in line for line in refusals(file, {"qwen": large}))
    assert refusals(file, {"qwen": {**large, **change}}) == []
    path = put(tmp_path, file, {"qwen": {**large, **change}})
    (found,) = check_units(load(path), served_units(load(path)).values(), None).units
    assert (found.fits, found.weights) == ("unknown", None)
    assert any(
        "whether qwen fits, and divides by the split, is unknown: the lock file has no record of it" in line
        for line in check_rack_file(path).warnings
    )


def test_a_share_that_is_too_small_names_the_one_that_is_enough() -> None:
    units = qwen(memory=0.5, args={"kv-cache-dtype": "fp8"})
    (found,) = refusals(text(units), RECORDS)
    assert "and 0.50 of 121.69 GiB is 60.8; write at least 0.57, or a shorter context" in found
    assert refusals(text(qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})), RECORDS) == []


def test_a_cache_of_a_given_size_must_fit_too() -> None:
    (found,) = refusals(text(qwen(memory=None, kv="60G")), RECORDS)
    assert found.startswith(f"{P}.kv @ kv: qwen needs 125.7 GiB a node (weights 57.7, keys and values 60.0, ")
    (small,) = refusals(text(qwen(memory=None, kv="1G")), RECORDS)
    assert small == (
        f"{P}.kv @ kv: 1G has no room for one sequence of 65536 tokens, which takes 5.9 GiB; "
        "write at least 6G, or a shorter context"
    )


def test_what_was_measured_replaces_the_estimate() -> None:
    good: dict[str, Any] = {
        "tensor": 2,
        "pipeline": 1,
        "share": 0.87,
        "weights": 57.64,
        "kv": 30.0,
        "kv_tokens": 700000,
    }
    good = {**good, "measured_with": MEASURED_WITH}
    units = qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})
    (found,) = refusals(text(units), RECORDS, {"qwen": {"calibration": good}})
    assert "overhead 18.1" in found
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "tensor": 4}}}) == []
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "kv": "30"}}}) != []
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "kv": None}}}) == []


def test_a_measurement_of_another_model_does_not_make_a_large_one_fit(tmp_path: Path) -> None:
    """`serve calibrate`, then another model: the figures of the first one do not count for it."""
    large = {"qwen": record("Qwen3-235B-A22B", 400 * 10**9)}
    small = {"tensor": 2, "pipeline": 1, "share": 0.8, "weights": 20.0, "kv": 70.0, "kv_tokens": 2_000_000}
    file = text(qwen(args={"kv-cache-dtype": "fp8"}))
    for entry in (small, {**small, "measured_with": {**MEASURED_WITH, "revision": "f" * 40}}):
        (found,) = refusals(file, large, {"qwen": {"calibration": entry}})
        assert "qwen needs 197.2 GiB a node (weights 186.3" in found


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"args": {"cpu-offload-gb": 40}}, "cpu-offload-gb", "takes 40.0 GiB of the host's memory on each node"),
        ({"args": {"kv-offloading-size": 60}, "version": "0.31.0"}, "kv-offloading-size", "takes 30.0 GiB"),
        ({"args": {"swap-space": 64}, "version": "0.17.1"}, "swap-space", "takes 64.0 GiB"),
    ],
)
def test_host_memory_beside_the_share_of_the_engine_is_refused(keys: dict[str, Any], key: str, words: str) -> None:
    """One pool: 0.80 and 40 GiB are 137.4 of 121.69. Known without the model, so it is reported before a fetch."""
    for models in (RECORDS, {}):
        (found,) = refusals(text(qwen(**keys)), models)
        assert found.startswith(f"{P}.args.{key} @ {key}: {words}")
        assert "and a node gives it at most 109.5; " in found
    assert refusals(text(qwen(**keys, fit={"override": "the weights are small"})), RECORDS) == []


def test_the_cache_of_sglang_on_the_host_is_a_multiple_of_that_on_the_gpu() -> None:
    (found,) = refusals(text(nemotron(args={"enable-hierarchical-cache": True}), machines(8)), RECORDS)
    # 0.85 of 121.69 GiB, less 38.0 of weights, 8 of overhead and the state: twice what is left.
    assert "args.enable-hierarchical-cache @ " in found
    assert "takes 114" in found
    assert refusals(text(nemotron(args={"hicache-ratio": 3.0}), machines(8)), RECORDS) == []


def test_a_small_amount_of_host_memory_takes_from_what_the_host_needs() -> None:
    sound = text(qwen(memory=0.78, args={"cpu-offload-gb": 5}), memory={"floor": "8G"})
    assert refusals(sound, RECORDS) == []
    (found,) = refusals(text(qwen(memory=0.78, args={"cpu-offload-gb": 14}), memory={"floor": "8G"}), RECORDS)
    assert found.startswith(
        f"{P}.memory @ memory: 0.78 with 14.0 GiB of the host's memory that its args take leaves 12.8"
    )


def test_eight_slices_of_experts_that_are_spread_are_no_mistake() -> None:
    """vLLM's recipe for MiniMax M2: eight GPUs with --enable-expert-parallel, since 1536 / 8 is not a block of 128."""
    keys: dict[str, Any] = {"nodes": "all", "args": {"kv-cache-dtype": "fp8"}}
    models = {"qwen": record("MiniMax-M2.5", 230 * 10**9)}
    spread = qwen(parallel={"tensor": 8, "expert": True}, **keys)
    assert refusals(text(spread, machines(8)), models) == []
    assert "block of 128" in refusals(text(qwen(parallel={"tensor": 8}, **keys), machines(8)), models)[0]


def test_what_is_known_of_an_unknown_model_can_be_too_much() -> None:
    keys: dict[str, Any] = {"args": {"kv-cache-dtype": "fp8"}}
    assert refusals(text(qwen(**keys)), {"qwen": record("DeepSeek-V4.1-Flash", 150 * 10**9)}) == []
    (found,) = refusals(text(qwen(**keys)), {"qwen": record("DeepSeek-V4.1-Flash", 510_313_353_565)})
    assert "qwen needs more than 245.6 GiB a node (weights 237.6, overhead 8.0)" in found
    assert "it fits on" not in found


def test_a_measurement_makes_an_unknown_model_known(tmp_path: Path) -> None:
    models = {"qwen": record("GLM-5.3-Flash", 150 * 10**9)}
    good = {"tensor": 2, "pipeline": 1, "share": 0.8, "weights": 70.0, "kv": 17.0, "kv_tokens": 1_000_000}
    units = {"qwen": {"calibration": {**good, "measured_with": MEASURED_WITH}}}
    file = text(qwen(args={"kv-cache-dtype": "fp8"}))
    assert notes(file, tmp_path, models, units) == []
    (note,) = notes(text(qwen(args={"kv-cache-dtype": "fp8"}, context=131072)), tmp_path, models, units)[:1]
    assert note == (
        f"{P}: the calibration in the lock file does not count: it was measured with context 65536, now 131072; "
        "`sparkrack serve calibrate qwen` measures it again"
    )


@pytest.mark.parametrize(("version", "known"), [("0.21.0", True), ("0.26.0", False)])
def test_deepseek_v4_is_known_with_the_releases_that_were_reported(version: str, known: bool, tmp_path: Path) -> None:
    models = {"qwen": record("DeepSeek-V4-Flash", 158 * 10**9)}
    found = notes(text(qwen(version=version, args={"kv-cache-dtype": "fp8"})), tmp_path, models)
    assert found == [] if known else "its compressed attention is known with vLLM before 0.26.0 only" in found[0]


@pytest.mark.parametrize(
    ("keys", "kv"),
    [
        ({"version": "0.21.0"}, 1.268),
        ({"version": "0.29.0"}, 1.408),
        ({"version": "0.29.0", "args": {"max-num-batched-tokens": 2048}}, 1.198),
        ({"version": "0.29.0", "args": {"disable-hybrid-kv-cache-manager": True}}, 2.25),
        ({"engine": "sglang", "version": "0.5.12", "image": SGLANG}, 2.025),
    ],
)
def test_layers_with_a_window_keep_what_the_engine_reserves(keys: dict[str, Any], kv: float) -> None:
    rack = loaded(text(qwen(**keys)), {"qwen": record("gpt-oss-120b", 65 * 10**9)})
    found = unit_fit(served_units(rack)["qwen"], read(CONFIGS / "gpt-oss-120b"), 65e9, Parallel(2, 1))
    assert found.fit.kv == pytest.approx(kv, abs=0.001)


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({}, 12),
        ({"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}}, 13),
        ({"args": {"speculative-config": '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'}}, 13),
        ({"args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}}}, 12),
        ({"engine": "sglang", "version": "0.5.12", "image": SGLANG, "args": {"speculative-algorithm": "NEXTN"}}, 13),
    ],
)
def test_a_layer_of_multi_token_prediction_keeps_keys_and_values(keys: dict[str, Any], layers: int) -> None:
    rack = loaded(text(qwen(**keys)), {"qwen": record("Qwen3.5-122B-A10B-NVFP4", 77 * 10**9)})
    shape = read(CONFIGS / "Qwen3.5-122B-A10B-NVFP4")
    found = unit_fit(served_units(rack)["qwen"], shape, 77e9, Parallel(2, 1))
    assert found.fit.token_bytes == layers * 2 * 1 * 256 * 2
    assert found.fit.unknown == {}


def test_gemma_4_before_vllm_0_21_is_unknown(tmp_path: Path) -> None:
    models = {"qwen": record("gemma-4-31B", 62 * 10**9)}
    assert "before vLLM 0.21.0" in notes(text(qwen()), tmp_path, models)[0]
    assert notes(text(qwen(version="0.21.0")), tmp_path, models) == []


def test_multi_token_prediction_of_nemotron_needs_the_radix_cache_off() -> None:
    args = {"speculative-algorithm": "NEXTN", "speculative-num-steps": 3, "kv-cache-dtype": "fp8_e4m3"}
    hosts = machines(8)
    assert refusals(text(nemotron(args=args), hosts), RECORDS) == [
        (
            "serving.units.nemotron.args.speculative-algorithm @ speculative-algorithm: NEXTN does not work "
            "with the radix "
            "cache of a Nemotron-H model; add disable-radix-cache: true to args"
        )
    ]
    assert refusals(text(nemotron(args={**args, "disable-radix-cache": True}), hosts), RECORDS) == []
    assert refusals(text(nemotron(args=args), hosts), {"nemotron": record("Qwen3-235B-A22B", QWEN_SIZE)}) == []
