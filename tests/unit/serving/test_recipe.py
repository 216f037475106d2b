"""Recipes of sparkrun and of eugr/spark-vllm-docker as units of rack.yaml: what is taken, warned about, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from serving.options import served_units
from sparkrack.serving.recipe import ImportedUnit, RecipeChoices, import_recipe, unit_name
from sparkrack.serving.recipe_registry import RecipeSource
from sparkrack.serving.recipe_text import RecipeError
from tests.unit.model.racks import changed
from tests.unit.model.serving_racks import loaded, machines

IMAGE = "registry.example.org/engine:1.0"
EUGR = r"""# Two nodes, Ray.
recipe_version: "1"
name: Tiny
description: A recipe for this test
model: acme/Tiny-FP8
container: vllm-node-tiny
cluster_only: true
build_args: [--tf5]
defaults: {port: 8001, host: 0.0.0.0, tensor_parallel: 2, gpu_memory_utilization: 0.8, max_model_len: 32768, tokens: 3}
env: {OMP_NUM_THREADS: 4, PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}
command: |
  vllm serve acme/Tiny-FP8 \
      --host {host} --port {port} \
      -tp {tensor_parallel} \
      --gpu-memory-utilization {gpu_memory_utilization} \
      --max-model-len {max_model_len} --max_num_seqs 4 \
      --no-enable-prefix-caching --enable-auto-tool-choice --tool-call-parser hermes \
      --max-num-batched-tokens 4096 \
      --speculative-config '{{"method":"mtp","num_speculative_tokens":{tokens}}}' \
      --compilation-config.cudagraph_mode none --compilation_config.pass_config.fuse_norm=true \
      --enable-expert-parallel \
      --distributed-executor-backend ray
"""
SPARKRUN = """recipe_version: "2"
model: acme/Tiny-FP8
model_revision: 0123abc
runtime: vllm
container: acme/tiny-vllm:0.21.0-cu130
min_nodes: 3
metadata: {description: A recipe for this test, model_params: 8B}
defaults:
  {port: 8000, pipeline_parallel: 3, max_model_len: 128k, max_num_seqs: 5, gpu_memory_utilization: 0.85, tokens: 2,
   speculative: '{"method": "mtp", "num_speculative_tokens": {tokens}}'}
executor_config: {shm_size: 10.24gb, privileged: true}
benchmark: {framework: llama-benchy}
x_notes: tried twice
command: |
  vllm serve {model} --port {port} -pp {pipeline_parallel} --max-model-len {max_model_len} \\
    --max-num-seqs {max_num_seqs} --gpu-memory-utilization {gpu_memory_utilization} \\
    --speculative-config '{speculative}' --compilation-config '{"cudagraph_mode":"NONE"}'
"""
SGLANG = """model: acme/Tiny
runtime: sglang
container: acme/dgx-spark-sglang:0.5.12
defaults:
  port: 8000
  host: 127.0.0.1
  tensor_parallel: 2
  gpu_memory_utilization: 0.8
  max_model_len: 65536
  max_num_seqs: 6
  attention_backend: triton
  trust_remote_code: true
  disable_radix_cache: false
  no_such_thing: 1
"""


def taken(text: str, source: RecipeSource | None = None, **choices: Any) -> tuple[dict[str, Any], ImportedUnit]:
    """The unit of a recipe, and all of it. What is printed loads in a rack file that has only nodes beside it."""
    found = import_recipe(text, RecipeChoices(**{"name": "tiny", "nodes": (), **choices}), source)
    (unit,) = found.units.values()
    written = YAML(typ="safe", pure=True).load(found.yaml())
    assert written["serving"]["units"] == dict(found.units)
    rack = loaded(machines(8) + found.yaml().replace("- spark", "- n")) if "n8" not in str(unit["nodes"]) else None
    assert rack is None or served_units(rack)
    return dict(unit), found


def refusal(text: str, source: RecipeSource | None = None, **choices: Any) -> tuple[str, ...]:
    """What is missing, a line each."""
    with pytest.raises(RecipeError) as caught:
        import_recipe(text, RecipeChoices(**{"name": "tiny", "nodes": ("n0", "n1"), **choices}), source)
    assert not any("\n" in problem for problem in caught.value.problems)
    return caught.value.problems


def test_a_recipe_of_eugr_becomes_a_unit() -> None:
    unit, found = taken(EUGR, version="0.21.0", image=IMAGE, nodes=("n0", "n1"))
    assert unit == {
        "engine": "vllm-ray",
        "version": "0.21.0",
        "image": IMAGE,
        "model": "tiny-fp8",
        "nodes": ["n0", "n1"],
        "parallel": {"tensor": 2, "pipeline": 1, "expert": True},
        "context": 32768,
        "sequences": 4,
        "memory": 0.8,
        "args": {
            "enable-prefix-caching": False,
            "enable-auto-tool-choice": True,
            "tool-call-parser": "hermes",
            "max-num-batched-tokens": 4096,
            "speculative-config": {"method": "mtp", "num_speculative_tokens": 3},
            "compilation-config": {"cudagraph_mode": "none", "pass_config": {"fuse_norm": True}},
            "served-model-name": "acme/Tiny-FP8",
        },
        "env": {"OMP_NUM_THREADS": "4", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "api": {"port": 8001, "listen": "management"},
    }
    assert found.images == (IMAGE,)
    assert found.models == {"tiny-fp8": {"source": "acme/Tiny-FP8"}}
    assert found.warnings == ("build_args: --tf5: belongs to the image, which must have it",)
    assert found.files == {}


def test_a_recipe_of_sparkrun_becomes_a_unit() -> None:
    unit, found = taken(SPARKRUN, nodes=("n0", "n1", "n2"))
    assert (unit["engine"], unit["version"], unit["context"]) == ("vllm", "0.21.0", 128000)
    assert unit["parallel"] == {"tensor": 1, "pipeline": 3}
    assert unit["args"] == {
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 2},
        "compilation-config": {"cudagraph_mode": "NONE"},
        "served-model-name": "acme/Tiny-FP8",
    }
    assert unit["shm"] == "10486M"
    assert found.models == {"tiny-fp8": {"source": "acme/Tiny-FP8", "revision": "0123abc"}}
    assert found.warnings == (
        "x_notes: left out: neither sparkrun nor eugr reads it",
        "executor_config.privileged: the launcher sets the options of the container",
    )


def test_a_recipe_without_a_command_takes_its_defaults() -> None:
    unit, found = taken(SGLANG, nodes=("n0", "n1"))
    assert (unit["engine"], unit["version"], unit["context"], unit["sequences"]) == ("sglang", "0.5.12", 65536, 6)
    assert (unit["parallel"], unit["memory"]) == ({"tensor": 2, "pipeline": 1}, 0.8)
    assert unit["args"] == {
        "attention-backend": "triton",
        "trust-remote-code": True,
        "no-such-thing": 1,
        "served-model-name": "acme/Tiny",
    }
    assert unit["api"] == {"port": 8000, "listen": "local"}
    assert unit["accept"] == {
        "no-such-thing": "the recipe gives it to its image; by the table it is not an option of SGLang 0.5.12"
    }
    (warning,) = found.warnings
    assert warning.startswith("args.no-such-thing: accepted, since the recipe has it; --no-such-thing is not an option")


def test_abbreviations_of_a_command_are_written_out() -> None:
    text = (
        SGLANG + "command: sglang serve --model-path {model} --tp 2 --context-length 4096 --mem-fraction-static 0.7\n"
    )
    unit, _ = taken(text, nodes=("n0", "n1"), sequences=8)
    assert unit["parallel"]["tensor"] == 2
    assert unit["args"] == {"served-model-name": "acme/Tiny"}


@pytest.mark.parametrize(("size", "expert"), [(1, {}), (2, {"expert": True})])
def test_expert_parallelism_of_one_rank_is_none(size: int, expert: dict[str, bool]) -> None:
    command = "sglang serve --model-path {model} --tp 2 --dp-size 1 --context-length 4096 --mem-fraction-static 0.7"
    unit, _ = taken(f"{SGLANG}command: {command} --ep-size {size}\n", nodes=("n0", "n1"), sequences=8)
    assert unit["parallel"] == {"tensor": 2, "pipeline": 1, **expert}


@pytest.mark.parametrize("quoted", ["'<think>'", '"<think>"'])
def test_signs_of_a_shell_in_quotes_and_comments_are_text(quoted: str) -> None:
    line = f"  # two nodes; no | here\n  export A=1 B=2\n  C=3 vllm serve acme/Tiny-FP8 --served-model-name {quoted} "
    text = changed(EUGR, ("  vllm serve acme/Tiny-FP8 ", line))
    unit, _ = taken(text, version="0.21.0", image=IMAGE, nodes=("n0", "n1"))
    assert unit["args"]["served-model-name"] == "<think>"
    assert {name: unit["env"][name] for name in "ABC"} == {"A": "1", "B": "2", "C": "3"}


def test_a_recipe_names_no_nodes() -> None:
    unit, found = taken(EUGR, version="0.21.0", image=IMAGE)
    assert unit["nodes"] == ["spark1", "spark2"]
    assert "nodes: a recipe names none; write those of your rack" in found.warnings


def test_a_rack_gives_its_first_nodes() -> None:
    unit, found = taken(EUGR, version="0.21.0", image=IMAGE, rack_nodes=("n3", "n1", "n2"))
    assert unit["nodes"] == ["n3", "n1"]
    assert not any(warning.startswith("nodes:") for warning in found.warnings)


def test_a_rack_with_fewer_nodes_than_ranks_is_refused() -> None:
    problems = refusal(plain("--pipeline-parallel-size 2"), nodes=(), rack_nodes=("n0", "n1"))
    assert problems == ("has 4 ranks, and the rack has 2 nodes",)


@pytest.mark.parametrize(
    ("old", "new", "warning", "key", "value"),
    [
        ("OMP_NUM_THREADS: 4", 'NCCL_IB_DISABLE: "1"', "env.NCCL_IB_DISABLE: left out: turns RDMA off", "env.x", None),
        ("OMP_NUM_THREADS: 4", "VLLM_HOST_IP: 10.0.0.1", "env.VLLM_HOST_IP: left out: is the address", "env.x", None),
        ("port: 8001", "port: 52001", "api.port: 8000 is written: 52001 is one of 32768 to 60999", "api.port", 8000),
        ("cluster_only: true", "min_nodes: 4", "min_nodes: the recipe asks for 4 nodes, its command ", "memory", 0.8),
        (
            "serve acme/Tiny-FP8",
            "serve acme/Small",
            "command: serves acme/Small, and not acme/Ti",
            "model",
            "small",
        ),
        ("--enable-expert-parallel", "--api-key sk-12345", "--api-key: a secret does not ", "api.key.env", "TINY_KEY"),
    ],
)
def test_what_the_rack_sets_itself_is_a_warning(old: str, new: str, warning: str, key: str, value: object) -> None:
    unit, found = taken(changed(EUGR, (old, new)), version="0.21.0", image=IMAGE, nodes=("n0", "n1"))
    assert len([line for line in found.warnings if line.startswith(warning)]) == 1, found.warnings
    assert "sk-12345" not in found.yaml() + "".join(found.warnings)
    place: Any = unit
    for part in key.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    assert place == value


def test_a_secret_in_the_environment_is_left_out_and_not_repeated() -> None:
    text = changed(EUGR, ("OMP_NUM_THREADS: 4", "HF_TOKEN: hf_abcdef"))
    unit, found = taken(text, version="0.21.0", image=IMAGE, nodes=("n0", "n1"))
    assert "HF_TOKEN" not in unit["env"]
    assert any(line.startswith("env.HF_TOKEN: left out: a secret") for line in found.warnings)
    assert "hf_abcdef" not in found.yaml() + "".join(found.warnings)


def test_a_secret_in_an_option_is_left_out_and_not_repeated() -> None:
    text = changed(EUGR, ("--enable-expert-parallel", "--hf-token hf_abcdefghijkl"))
    unit, found = taken(text, version="0.21.0", image=IMAGE, nodes=("n0", "n1"))
    assert "hf-token" not in unit["args"]
    assert any(line.startswith("--hf-token: a secret does not belong in a file") for line in found.warnings)
    assert "hf_abcdefghijkl" not in found.yaml() + "".join(found.warnings)


@pytest.mark.parametrize(
    ("edits", "choices", "expected"),
    [
        (
            [],
            {"version": None},
            "not say which vLLM is in its image; give --version (0.10.2 to 0.33.0)",
        ),
        ([], {"version": "new"}, "'new' is not a version; write it as 0.21.0; give --version (0.10.2 to 0.33.0)"),
        ([], {"image": None}, "container: vllm-node-tiny is in no registry; push the image to one and give --image"),
        (
            [("container: vllm-node-tiny", "container: acme/engine:latest")],
            {"image": None},
            (
                "container: acme/engine:latest is not pinned, the tag moves; name a version, like "
                "scitrera/dgx-spark-sglang:0.5.12, or a digest (@sha256:...); give --image"
            ),
        ),
        ([("max_model_len: 32768", "max_model_len: auto")], {}, "does not say how long a sequence can be; give --cont"),
        ([("max_model_len: 32768, ", "")], {}, "command: {max_model_len} has no value in defaults; add it to a copy"),
        (
            [("_utilization: 0.8,", "_utilization: 0.92,")],
            {},
            "memory: 0.92 leaves 9.7 GiB for the host; write at most 0.90, with",
        ),
        ([("_utilization: 0.8,", "_utilization: all,")], {}, "memory: all is not a share of the memory; give --memory"),
        (
            [("OMP_NUM_THREADS: 4", "A: $HOME/x")],
            {},
            "env.A: has a variable inside its value, which nothing repl",
        ),
        (
            [("serve acme/Tiny-FP8", "serve /m/x")],
            {},
            "command: serves /m/x, which is not a model on the hub; wri",
        ),
        (
            [("--enable-expert-parallel", "--prefix-caching")],
            {},
            "command: --prefix-caching-hash-algo has no value; c",
        ),
        (
            [("ray\n", "ray $EXTRA\n")],
            {},
            "command: ${EXTRA} is a shell variable, whose value only the container kn",
        ),
        ([("ray\n", "ray --uds /tmp/x\n")], {}, "args.uds: the engine would listen on a socket file and on no port"),
        ([("name: Tiny", "patches: [a.py]")], {}, "patches: are files of the author's own tool; put them into a mod"),
        (
            [("name: Tiny", "post_exec: [echo ready]")],
            {},
            "post_exec: nothing runs after a start, which a completion",
        ),
        (
            [("name: Tiny", "volumes: [/data:/data]")],
            {},
            "volumes: /data:/data: a unit has models, and files beside",
        ),
        ([("tensor_parallel: 2", "tensor_parallel: 16")], {}, "has 16 ranks; a rack has 1 to 8 nodes with a rank each"),
        ([("--enable-expert-parallel", "--config x.yaml")], {}, "--config names a file with more options; write them"),
        (
            [("vllm serve acme/Tiny-FP8", "ollama")],
            {},
            "command: ollama --host: is not an engine that is imported; vllm",
        ),
        ([("ray\n", "ray && echo x\n")], {}, "command: is a shell script (&&); leave only the line of the engine"),
        ([("ray\n", "ray\n  sleep 1\n")], {}, "command: has more than one line; leave only the line of the engine"),
        ([("--max_num_seqs 4", "--max_num_seqs many")], {}, "--max-num-seqs many: is not a whole number; correct a"),
        (
            [("acme/Tiny-FP8\ncontainer", "acme/Tiny:Q4\ncontainer"), ("serve acme/Tiny-FP8", "serve {model}")],
            {},
            "model acme/Tiny:Q4: is not the name of a model on the hub; write OWNER/NAME",
        ),
        (
            [("name: Tiny", "runtime: trtllm")],
            {},
            "runtime trtllm: is not an engine that is imported; vllm, ",
        ),
        ([("name: Tiny", "name: [Tiny")], {}, "line 3: "),
        ([("env: {OMP", "env: [OMP"), (':True"}', ':True"]')], {}, "env is not a mapping; give a recipe of sparkrun"),
    ],
)
def test_what_does_not_come_over_is_refused_with_what_to_do(
    edits: list[tuple[str, str]], choices: dict[str, Any], expected: str
) -> None:
    (problem,) = refusal(changed(EUGR, *edits), **{"version": "0.21.0", "image": IMAGE, **choices})
    assert expected in problem


def test_all_that_is_missing_is_reported_at_once() -> None:
    text = changed(EUGR, ("max_model_len: 32768", "max_model_len: auto"), (" --max_num_seqs 4", ""))
    found = refusal(changed(text, ("      --gpu-memory-utilization {gpu_memory_utilization} \\\n", "")))
    assert [line.partition(":")[0] for line in found] == ["container", "version", "context", "sequences", "memory"]
    assert [line.rpartition("give ")[2].partition(" ")[0].rstrip(",") for line in found] == [
        *("--image", "--version", "--context", "--sequences", "--memory")
    ]


@pytest.mark.parametrize("text", ["", "- a\n", "text\n", "a: &x [*x]\n", "model: acme/x\n"])
def test_what_is_not_a_recipe_is_refused(text: str) -> None:
    assert refusal(text)


@pytest.mark.parametrize(
    ("stem", "name"),
    [("qwen3.5-397B", "qwen3_5_397b"), ("--", "unit"), ("a" * 40, "a" * 31), ("Ünit", "nit")],
)
def test_the_name_of_a_unit_follows_from_the_file(stem: str, name: str) -> None:
    assert unit_name(Path(f"{stem}.yaml").stem) == name


LINE = "vllm serve {model} --port 8000 -tp 2 --max-model-len 4096 --max-num-seqs 4 --gpu-memory-utilization 0.8"


def plain(more: str = "", **keys: str) -> str:
    """A recipe of one line, with more options; other keys of it."""
    lines = {"model": "acme/Tiny", "runtime": "vllm", "container": "acme/tiny:0.21.0", **keys}
    return "".join(f"{key}: {value}\n" for key, value in lines.items()) + f"command: {LINE} {more}\n"


@pytest.mark.parametrize(
    ("length", "context"),
    [("4096", 4096), ("4k", 4000), ("4K", 4096), ("0.5m", 500_000), ("1M", 2**20), ("1.5k", 1500)],
)
def test_the_length_of_a_sequence_is_read_with_its_unit(length: str, context: int) -> None:
    unit, _ = taken(plain().replace("--max-model-len 4096", f"--max-model-len {length}"))
    assert unit["context"] == context
    chosen, _ = taken(plain(), context=2048)
    assert chosen["context"] == 2048


@pytest.mark.parametrize(
    ("size", "kv"), [("20G", "20G"), ("2147483648", "2G"), ("3000000k", "2861M"), ("4800M", "4800M"), ("3g", "2861M")]
)
def test_the_size_of_a_cache_takes_the_place_of_a_share(size: str, kv: str) -> None:
    unit, _ = taken(plain(f"--kv-cache-memory-bytes {size}"))
    assert unit["kv"] == kv
    assert "memory" not in unit


@pytest.mark.parametrize("size", ["1073741823", "many", "1.5x"])
def test_a_cache_below_1_gib_is_refused(size: str) -> None:
    said = f"kv: --kv-cache-memory-bytes {size} is not a size of at least 1 GiB; write another"
    assert refusal(plain(f"--kv-cache-memory-bytes {size}")) == (said,)


@pytest.mark.parametrize(
    ("more", "api"),
    [
        ("", {"port": 8000}),
        ("--host 127.0.0.1", {"port": 8000, "listen": "local"}),
        ("--host ::1", {"port": 8000, "listen": "local"}),
        ("--host 10.0.0.1", {"port": 8000, "listen": "management"}),
    ],
)
def test_where_the_engine_listens_is_taken_over(more: str, api: dict[str, Any]) -> None:
    assert taken(plain(more))[0]["api"] == api


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ("--shutdown-timeout 30", "drain", "30s"),
        ("--shutdown-timeout 0", "drain", "1s"),
        ("--distributed-executor-backend ray", "engine", "vllm-ray"),
        ("--distributed-executor-backend mp", "engine", "vllm"),
        ("--data-parallel-size 1", "parallel", {"tensor": 2, "pipeline": 1}),
        ("--enable-expert-parallel", "parallel", {"tensor": 2, "pipeline": 1, "expert": True}),
        ("--nnodes 2 --node-rank 1 --headless --master-addr 10.0.0.1 --master-port 1", "args", {}),
        ("--max-num-batched-tokens 1k", "args", {"max-num-batched-tokens": "1k"}),
        ("--seed 5 --seed 6", "args", {"seed": 6}),
        ("--enable-prefix-caching --no-enable-prefix-caching", "args", {"enable-prefix-caching": False}),
        ("--disable-log-stats", "args", {}),
    ],
)
def test_an_option_that_a_key_stands_for_is_not_an_argument(more: str, key: str, value: object) -> None:
    found: Any = taken(plain(more), version="0.31.0")[0].get(key)
    assert found == (
        {**value, "served-model-name": "acme/Tiny"} if key == "args" and isinstance(value, dict) else value
    )


def test_a_commit_of_the_model_is_taken_from_the_recipe_or_the_command() -> None:
    _, found = taken(plain("--revision abc"))
    assert found.models == {"tiny": {"source": "acme/Tiny", "revision": "abc"}}
    _, found = taken(plain(model_revision="def"))
    assert found.models == {"tiny": {"source": "acme/Tiny", "revision": "def"}}


@pytest.mark.parametrize(
    ("image", "keys", "version"),
    [
        ("acme/tiny:0.21.0", {}, "0.21.0"),
        ("acme/tiny:v0.21.0-cu130", {}, "0.21.0"),
        ("acme/tiny:nightly-0.21.1rc1", {}, "0.21.1rc1"),
        ("acme/tiny:1.0", {"runtime_version": "0.20.0"}, "0.20.0"),
        ("acme/tiny:0.21.0", {"runtime_version": "0.20.0"}, "0.20.0"),
    ],
)
def test_the_version_is_that_of_the_recipe_or_of_the_tag(image: str, keys: dict[str, str], version: str) -> None:
    unit, found = taken(plain(container=image, **keys))
    assert (unit["version"], unit["image"], found.images) == (version, image, (image,))


@pytest.mark.parametrize("tag", ["10.21.0", "0.21", "0.21.0.5"])
def test_a_tag_that_is_not_a_version_of_an_engine_names_none(tag: str) -> None:
    (problem,) = refusal(plain(container=f"acme/tiny:{tag}"))
    assert problem.startswith("version: the recipe does not say which vLLM is in its image; give --version")


def test_as_many_nodes_are_named_as_ranks_are_needed() -> None:
    unit, found = taken(plain("--pipeline-parallel-size 3"))
    assert unit["nodes"] == [f"spark{number}" for number in range(1, 7)]
    assert unit["engine"] == "vllm"
    assert found.warnings == ("nodes: a recipe names none; write those of your rack",)
    one, _ = taken(plain(runtime="vllm-ray").replace("-tp 2", "-tp 1"), nodes=("n0",))
    assert (one["engine"], one["nodes"]) == ("vllm", ["n0"])


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        ({"min_nodes": "2"}, False),
        ({"min_nodes": "3"}, True),
        ({"min_nodes": "many"}, False),
        ({"cluster_only": "true"}, False),
    ],
)
def test_a_recipe_for_more_nodes_than_its_command_has_ranks_is_a_warning(keys: dict[str, str], warned: bool) -> None:
    _, found = taken(plain(**keys), nodes=("n0", "n1"))
    assert any(line.startswith("min_nodes: ") for line in found.warnings) is warned


@pytest.mark.parametrize(
    ("size", "shm"), [("16g", "16G"), ("10.9gb", "11162M"), ("512MB", "512M"), ("16", None), ("16t", None)]
)
def test_the_size_of_shared_memory_is_taken_over(size: str, shm: str | None) -> None:
    unit, found = taken(plain(executor_config=f"{{shm_size: {size}}}"), nodes=("n0", "n1"))
    assert unit.get("shm") == shm
    assert any(line.startswith("executor_config.shm_size: ") for line in found.warnings) is (shm is None)


@pytest.mark.parametrize(
    ("program", "engine"),
    [
        ("vllm serve acme/Tiny --max-model-len 4096", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model acme/Tiny --max-model-len 4096", "vllm"),
        ("sglang serve --model-path acme/Tiny --context-length 4096", "sglang"),
        ("exec python3 -m sglang.launch_server --model-path acme/Tiny --context-length 4096", "sglang"),
    ],
)
def test_each_program_of_an_engine_is_known(program: str, engine: str) -> None:
    version = {"vllm": "0.21.0", "sglang": "0.5.12"}[engine]
    text = f"container: acme/tiny:1.0\ncommand: {program}\n"
    unit, found = taken(text, version=version, nodes=("n0",), sequences=8, memory=0.8)
    assert (unit["engine"], found.models) == (engine, {"tiny": {"source": "acme/Tiny"}})
    assert unit["api"]["port"] == (30000 if engine == "sglang" else 8000)


KEYS = (
    *("model", "model_revision", "runtime", "runtime_version", "container", "defaults", "env", "command", "min_nodes"),
    *("mods", "pre_exec", "volumes", "draft_model", "build_args", "runtime_config", "executor_config"),
    *("distribution_config", "cluster_only", "post_exec", "metadata", "other"),
)
FORMS = (
    "5",
    "1.5",
    "yes",
    "[]",
    "[a, [1]]",
    "{a: 1}",
    "{models: 3}",
    "{models: {entries: 5}}",
    "x y",
    "2026-11-26",
    "''",
)


def outcome(text: str) -> tuple[str, ...]:
    """What is missing, or the names of the units."""
    try:
        return tuple(import_recipe(text, RecipeChoices("tiny")).units)
    except RecipeError as error:
        return error.problems


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_any_form_is_taken_or_refused_in_words(key: str) -> None:
    for form in FORMS:
        lines = {"model": "acme/Tiny", "runtime": "vllm", "container": "acme/tiny:0.21.0", key: form}
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        text += "" if key == "command" else f"command: {LINE}\n"
        assert all(line.strip() for line in outcome(text)), (key, form)


@pytest.mark.parametrize(
    "more",
    [
        *(
            "--",
            "-",
            "--=x",
            "--a=",
            "-x",
            "--speculative-config '{'",
            "--speculative-config.model",
            "-O",
            "-O9",
            "-tp",
        ),
        *("--tensor-parallel-size", "--port x", "--port 99999999", "--max-num-seqs -1", "--lora-modules", "--a.b.c 1"),
        *("--kv-cache-memory-bytes", "--served-model-name ''", "--seed 1 --seed.x 2", "--compilation-config 3"),
    ],
)
def test_a_command_of_any_form_is_taken_or_refused_in_words(more: str) -> None:
    assert all(line.strip() for line in outcome(plain(more)))
