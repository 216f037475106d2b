"""examples/: each rack file loads, what its ranks run is accepted by the release, its units fit, and what the published
command lines had wrong is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from core.model import addresses_of, load
from roles.rdma.environment import variables
from roles.rdma.options import socket_addresses
from serving.engines.command_line import judge
from serving.launch import rank_argv
from serving.options import served_units
from sparkrack.cli.main import sparkrack
from tests.generated import REPOSITORY
from tests.unit.model.racks import changed
from tests.unit.model.serving_racks import Records, put, record, refusals
from tests.unit.serving.engines.example_lines import EXAMPLES, ExampleLine, lines

FOLDER = Path(REPOSITORY) / "examples"
GROUPS_OF_128 = {"bits": 4, "group_size": 128}
GPTQ = {"quantization_config": {"quant_method": "gptq", **GROUPS_OF_128}}
AWQ = {"quantization_config": {"quant_method": "awq", **GROUPS_OF_128}}

NEMOTRON, LLAMA, GPT_OSS, DEEPSEEK, QWEN = (
    "nemotron-ultra-8-nodes",
    "llama-405b-3-nodes-ray",
    "gpt-oss-120b-2-nodes-ray",
    "deepseek-v4-flash-2-nodes",
    "qwen3-235b-2-nodes-ray",
)
GEMMA, DEEPSEEK_FOUR, DEEPSEEK_RING = (
    "gemma-4-26b-2-nodes-ray",
    "deepseek-v4.1-flash-4-nodes",
    "deepseek-v4.1-flash-3-nodes",
)
"""Of the autumn of 2026."""
MODELS: Mapping[str, dict[str, Any]] = {
    NEMOTRON: {"nemotron-ultra": record("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326 * 10**9)},
    LLAMA: {"llama-405b": record("Meta-Llama-3.1-405B", 217 * 10**9, **AWQ)},
    GPT_OSS: {"gpt-oss-120b": record("gpt-oss-120b", 65_200_000_000)},
    DEEPSEEK: {"deepseek-v4-flash": record("DeepSeek-V4-Flash", 158 * 10**9)},
    QWEN: {"qwen3-235b": record("Qwen3-235B-A22B", 124 * 10**9, **GPTQ)},
    "rack": {"nemotron-ultra": record("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326 * 10**9)},
    # No published size of these: of Gemma half a byte for each of 25.2 billion parameters, and scales.
    GEMMA: {
        "gemma-4-26b": record("gemma-4-26B-A4B", 16 * 10**9, quantization_config={"quant_method": "modelopt"}),
        "gemma-4-26b-assistant": record("gemma-4-26B-A4B", 10**9),
    },
    DEEPSEEK_FOUR: {"deepseek-v4.1-flash": record("DeepSeek-V4.1-Flash")},
    DEEPSEEK_RING: {"deepseek-v4.1-flash": record("DeepSeek-V4.1-Flash")},
}
"""What the lock file of each example records, with the sizes of the published files."""


def example(name: str) -> str:
    return (FOLDER / f"{name}.yaml").read_text()


def test_each_example_is_of_this_list_and_in_the_table_of_the_page() -> None:
    assert {path.stem for path in EXAMPLES} == set(MODELS)
    page = (Path(REPOSITORY) / "docs/serving.md").read_text()
    assert set(re.findall(r"\(\.\./examples/([a-z0-9.-]+)\.yaml\)", page)) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recorded", [False, True])
def test_an_example_loads_without_a_problem(name: str, recorded: bool) -> None:
    assert refusals(example(name), MODELS[name] if recorded else None) == []


@pytest.mark.parametrize("line", list(lines()), ids=lambda line: f"{line.example}-{line.unit}-{line.rank}")
def test_the_line_of_a_rank_is_accepted_by_the_release(line: ExampleLine) -> None:
    verdict = judge(line.engine, line.version, line.argv)
    assert verdict.problems == ()
    assert verdict.accepted


RANKS = {
    (NEMOTRON, "nemotron_ultra"): 8,
    (NEMOTRON, "nemotron_ultra_mtp"): 8,
    (LLAMA, "llama_405b"): 1,
    (GPT_OSS, "gpt_oss"): 1,
    (DEEPSEEK, "deepseek_v4_flash"): 2,
    (QWEN, "qwen3_235b"): 1,
    ("rack", "ultra"): 8,
    (GEMMA, "gemma_4_26b"): 1,
    (DEEPSEEK_FOUR, "deepseek_v41_flash"): 4,
    (DEEPSEEK_RING, "deepseek_v41_flash"): 3,
}
"""How many ranks start an engine: with Ray the head only."""


def test_no_rank_is_left_out() -> None:
    found = list(lines())
    assert {key: sum((line.example, line.unit) == key for line in found) for key in RANKS} == RANKS
    assert len(found) == sum(RANKS.values())
    for name in (LLAMA, GPT_OSS, QWEN, GEMMA):
        rack = load(FOLDER / f"{name}.yaml")
        (unit,) = served_units(rack).values()
        addresses = socket_addresses(rack)
        head, *others = unit.ranks(rack.nodes)
        for rank, node in enumerate(others, 1):
            argv = rank_argv(rack, unit, rank, addresses)
            assert argv[:2] == ("ray", "start")
            assert {f"--address={addresses[head]}:6379", f"--node-ip-address={addresses[node]}"} <= set(argv)


@pytest.mark.parametrize(
    ("name", "unit", "total", "allowed"),
    [
        (NEMOTRON, "nemotron_ultra", 47.1, 103.4),
        (NEMOTRON, "nemotron_ultra_mtp", 47.1, 103.4),
        (LLAMA, "llama_405b", 87.2, 103.4),
        (GPT_OSS, "gpt_oss", 40.8, 97.4),
        (DEEPSEEK, "deepseek_v4_flash", 82.9, 94.9),
        (QWEN, "qwen3_235b", 67.6, 105.9),
        ("rack", "ultra", 47.1, 103.4),
    ],
)
def test_a_unit_fits(name: str, unit: str, total: float, allowed: float, tmp_path: Path) -> None:
    path = put(tmp_path, example(name), MODELS[name])
    found = CliRunner().invoke(sparkrack, ["serve", "check", unit, "--json", "--rack", str(path)])
    assert found.exit_code == 0, found.output
    (one,) = json.loads(found.stdout)["units"]
    assert (one["fits"], one["reason"], one["overhead_from"]) == ("yes", "", "default")
    assert (round(one["total"], 1), round(one["allowed"], 1)) == (total, allowed)


@pytest.mark.parametrize("name", [NEMOTRON, QWEN])
def test_figures_that_engines_printed(name: str, tmp_path: Path) -> None:
    """SGLang printed 50.4 GiB of keys and values for 17.6 million tokens on each node, vLLM 57.64 GiB of weights."""
    path = put(tmp_path, example(name), MODELS[name])
    found = CliRunner().invoke(sparkrack, ["serve", "check", "--json", "--rack", str(path)])
    one = json.loads(found.stdout)["units"][0]
    if name == NEMOTRON:
        assert one["kv"] / 262144 * 17_600_000 == pytest.approx(50.4, rel=0.02)
    else:
        assert one["weights"] == pytest.approx(57.64, rel=0.02)


WRONG: dict[str, tuple[str, tuple[tuple[str, str], ...], Records, tuple[str, ...]]] = {
    "an option that no release has": (
        DEEPSEEK,
        (("        enable-prefix-caching: true ", "        prefix-caching: true "),),
        None,
        (
            (
                "args.prefix-caching @ prefix-caching: --prefix-caching is not an option of vLLM 0.21.1rc1 "
                "(0.21.1rc1 is judged by 0.21.0); did you mean --enable-prefix-caching? or give the "
                "reason why the image has it at accept.prefix-caching"
            ),
        ),
    ),
    "the rendezvous by hand": (
        DEEPSEEK,
        (("        load-format: safetensors\n", "        load-format: safetensors\n        master-port: 29501\n"),),
        None,
        (
            (
                "args.master-port @ master-port: --master-port follows from the first node of the unit; "
                "remove it from args"
            ),
        ),
    ),
    "too little for the host": (
        GPT_OSS,
        (("      memory: 0.80\n", "      memory: 0.92\n"),),
        None,
        ("memory @ memory: 0.92 leaves 9.7 GiB for the host; write at most 0.90",),
    ),
    "405B in FP4 on two nodes": (
        GPT_OSS,
        (
            ("      memory: 0.80\n", "      memory: 0.90\n      args: {kv-cache-dtype: fp8}\n"),
            ("      context: 131072 ", "      context: 4096 "),
        ),
        {"gpt-oss-120b": record("Meta-Llama-3.1-405B", 234_300_000_000)},
        (
            (
                "memory @ memory: gpt-oss-120b needs 117.6 GiB a node (weights 109.1, keys and values 0.5, "
                "overhead 8.0), and 0.90 of 121.69 GiB is 109.5; write a shorter context, or fewer sequences; "
                "it fits on 3, 4, 5, 6, 7, 8 nodes; or give the reason why it does at fit.override"
            ),
        ),
    ),
    "three tensor slices": (
        LLAMA,
        (("{pipeline: 3}", "{tensor: 3}"),),
        MODELS[LLAMA],
        tuple(
            (
                f"parallel @ parallel: {what}; write another split; it fits on 3, 4, 5, 6, 7, 8 nodes"
                "; or give the reason why the image takes it, as by padding, at accept.parallel.tensor"
            )
            for what in (
                "128 attention heads are not divisible by TP=3",
                "8 key-value heads and TP=3 do not divide one another",
            )
        ),
    ),
    "RDMA turned off": (
        LLAMA,
        (("{kv-cache-dtype: fp8}\n", '{kv-cache-dtype: fp8}\n      env: {NCCL_IB_DISABLE: "1"}\n'),),
        None,
        ("env.NCCL_IB_DISABLE @ env: turns RDMA off, so that the ranks talk over TCP; remove it",),
    ),
    "Ray by hand": (
        QWEN,
        (("args: {attention-backend", "args: {distributed-executor-backend: ray, attention-backend"),),
        None,
        (
            (
                "args.distributed-executor-backend @ args: --distributed-executor-backend follows from the engine; "
                "remove it from args"
            ),
        ),
    ),
}
"""By what is wrong: the example, what is put in, the lock file, and the refusals with the line that each blames."""


@pytest.mark.parametrize("what", WRONG)
def test_what_a_report_has_wrong_is_refused_with_its_line(what: str) -> None:
    name, edits, models, expected = WRONG[what]
    (unit,) = (unit for example_name, unit in RANKS if example_name == name)
    assert refusals(changed(example(name), *edits), models) == [f"serving.units.{unit}.{line}" for line in expected]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "disable-piecewise-cuda-graph: true\n",
            "disable-deep-gemm: true\n",
            "args.disable-deep-gemm @ disable-deep-gemm: --disable-deep-gemm is not an option of SGLang 0.5.12; ",
        ),
        (
            'env: {SGLANG_ENABLE_DEEP_GEMM: "0"}',
            'env: {NCCL_IB_HCA: "rocep1s0f1,roceP2p1s0f1"}',
            "env.NCCL_IB_HCA @ env: names the RDMA devices, which the launcher does by the cable of each node: others ",
        ),
        (
            "version: 0.5.12\n",
            "version: 0.5.20\n",
            "args.cuda-graph-max-bs @ cuda-graph-max-bs: --cuda-graph-max-bs is not an option of SGLang 0.5.20: ",
        ),
        (
            "disable-radix-cache: true ",
            "disable-radix-cache: false ",
            "args.speculative-algorithm @ speculative-algorithm: NEXTN does not work with the radix cache of a ",
        ),
    ],
)
def test_each_unit_of_nemotron_that_has_a_wrong_line_is_refused(old: str, new: str, expected: str) -> None:
    text = example(NEMOTRON)
    wrong = [unit for _, unit in RANKS if unit.startswith("nemotron")][-text.count(old) :]
    found = refusals(text.replace(old, new), MODELS[NEMOTRON])
    for unit in wrong:
        assert len([line for line in found if line.startswith(f"serving.units.{unit}.{expected}")]) == 1, found


def test_both_units_of_nemotron_cannot_be_up() -> None:
    found = refusals(changed(example(NEMOTRON), ("      state: down\n", "")))
    place = "serving.units.nemotron_ultra_mtp"
    both = "the units that can be up on spark1 take 206.9 GiB together (nemotron_ultra 103.4, nemotron_ultra_mtp 103.4)"
    assert any(line.startswith(f"{place}.memory @ memory: {both}") for line in found), found
    assert any(line.startswith(f"{place}.api.port @ api: 30000 is the port of unit nemotron_ultra") for line in found)


def test_the_fabric_is_what_the_comments_say() -> None:
    legs = load(FOLDER / f"{NEMOTRON}.yaml")
    assert variables(legs, legs.nodes["spark1"], "enP7s7", {})["NCCL_IB_HCA"] == "=rocep1s0f1"
    cable = load(FOLDER / f"{GPT_OSS}.yaml")
    found = variables(cable, cable.nodes["spark1"], "enP7s7", {})
    assert found["NCCL_IB_HCA"] == "=rocep1s0f1,roceP2p1s0f1"
    assert found["NCCL_SOCKET_IFNAME"] == "=enp1s0f1np1"
    first = [addresses_of(cable, node)[0].interface.ip for node in cable.nodes]
    assert first == [IPv4Address("192.168.100.10"), IPv4Address("192.168.100.11")]


@pytest.mark.parametrize("name", [DEEPSEEK_FOUR, DEEPSEEK_RING])
def test_whether_a_model_of_a_new_architecture_fits_is_unknown(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, example(name), MODELS[name])
    found = CliRunner().invoke(sparkrack, ["serve", "check", "deepseek_v41_flash", "--json", "--rack", str(path)])
    (one,) = json.loads(found.stdout)["units"]
    assert one["fits"] == "unknown"
    assert one["reason"].startswith("the architecture deepseek_v41 is not one whose memory is known here; ")


def test_a_draft_model_is_named_by_its_place_in_the_container_and_counted(tmp_path: Path) -> None:
    rack = load(put(tmp_path, example(GEMMA), MODELS[GEMMA]))
    (unit,) = served_units(rack).values()
    argv = rank_argv(rack, unit, 0, socket_addresses(rack))
    assert json.loads(argv[argv.index("--speculative-config") + 1])["model"] == "/models/gemma-4-26b-assistant"
    wrong = example(GEMMA).replace("/models/gemma-4-26b-assistant ", "google/gemma-4-26B-A4B-it-assistant ")
    (found,) = refusals(wrong)
    assert "google/gemma-4-26B-A4B-it-assistant is a repository or a path" in found


def test_a_split_that_the_image_pads_for_needs_its_reason() -> None:
    """With a model of an architecture that is known, whose heads three slices do not divide."""
    known = {"deepseek-v4.1-flash": record("DeepSeek-V4-Flash", 158 * 10**9)}
    declared = example(DEEPSEEK_RING)
    (accept,) = (line for line in declared.splitlines(keepends=True) if line.startswith("      accept: "))
    assert [one for one in refusals(declared, known) if "not divisible" in one] == []
    assert any(
        "64 attention heads are not divisible by TP=3" in one for one in refusals(declared.replace(accept, ""), known)
    )
