"""A recipe for llama.cpp becomes a unit with the same file of the model and the same options, or it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkrack.serving.recipe import RecipeChoices, import_recipe
from sparkrack.serving.recipe_text import RecipeError
from tests.unit.serving.test_recipe_whole import arguments, taken

RECIPE = """model: acme/Tiny-GGUF:Q8_0
runtime: llama-cpp
max_nodes: 1
container: acme/llama-cpp:b11236-cu131
defaults: {port: 8000, host: 0.0.0.0, n_gpu_layers: 99, ctx_size: 8192, served_model_name: tiny}
command: |
  llama-server -hf {model} --host {host} --port {port} --n-gpu-layers {n_gpu_layers} --ctx-size {ctx_size} \\
      --flash-attn on --jinja --no-webui --no-mmap
"""
"""As sparkrun documents such a recipe."""
WITHOUT_COMMAND = """model: acme/Tiny-VL-GGUF:Q4_K_M
runtime: llama-cpp
container: acme/llama-cpp:b11236
mmproj: auto
defaults:
  port: 8001
  alias: tiny-vl
  ctx_size: 8192
  parallel: 4
  flash_attn: on
  jinja: true
  temperature: 0.7
  webui: false
  mmap: false
  gpu_memory_utilization: 0.3
"""
GIVEN: dict[str, Any] = {"kv": "2G", "gguf": ("Tiny-Q8_0.gguf",), "sequences": 2}

NGL = {"n-gpu-layers": "20", "flash-attn": "on", "cache-type-k": "q8_0"}


def edited(*edits: tuple[str, str]) -> str:
    text = RECIPE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def refusal(text: str, **choices: Any) -> tuple[str, ...]:
    with pytest.raises(RecipeError) as caught:
        import_recipe(text, RecipeChoices(**{"name": "tiny", "nodes": ("n0",), **GIVEN, **choices}))
    return caught.value.problems


def test_a_recipe_becomes_a_unit_with_the_file_the_sizes_and_the_options(tmp_path: Path) -> None:
    unit, found = taken(RECIPE, **GIVEN)
    assert found.models == {"tiny": {"source": "acme/Tiny-GGUF", "files": ["Tiny-Q8_0.gguf"]}}
    assert unit == {
        "engine": "llama.cpp",
        "version": "b11236",
        "image": "acme/llama-cpp:b11236-cu131",
        "model": "tiny",
        "gguf": "Tiny-Q8_0.gguf",
        "nodes": ["n0"],
        "context": 8192,
        "sequences": 2,
        "kv": "2G",
        "args": {"n-gpu-layers": "99", "flash-attn": "on", "jinja": True},
        "api": {"port": 8000, "listen": "management"},
    }
    assert arguments(found, tmp_path) == ["--n-gpu-layers", "99", "--flash-attn", "on", "--jinja"]


def test_without_a_command_the_defaults_are_the_options_as_sparkrun_reads_them(tmp_path: Path) -> None:
    files = ("Q4_K_M/tiny-Q4_K_M-00001-of-00003.gguf", "mmproj-F16.gguf")
    unit, found = taken(WITHOUT_COMMAND, kv="2G", gguf=files)
    assert found.models["tiny-vl"]["files"] == ["Q4_K_M/tiny-Q4_K_M-*-of-00003.gguf", "mmproj-F16.gguf"]
    assert (unit["gguf"], unit["context"], unit["sequences"]) == (files[0], 2048, 4)
    assert unit["args"] == {
        "flash-attn": "on",
        "jinja": True,
        "temp": 0.7,
        "mmproj": "/models/tiny-vl/mmproj-F16.gguf",
    }
    assert "accept" not in unit
    assert "--mmproj" in arguments(found, tmp_path)
    assert found.warnings == (
        "defaults.gpu_memory_utilization: left out: it is not an option of llama-server, and sparkrun drops it, too",
    )


@pytest.mark.parametrize(
    ("edits", "key", "value"),
    [
        ([("--ctx-size {ctx_size}", "-c 8192 -np 4")], "context", 2048),
        ([("--ctx-size {ctx_size}", "--ctx_size 8192")], "context", 8192),
        ([("--ctx-size {ctx_size}", "-c 8192 --parallel -1")], "context", 8192),
        ([("ctx_size: 8192", "max_model_len: 4096")], "context", 4096),
        ([("-hf {model}", "-hf acme/Other-GGUF:Q8_0 --hf-file other-q8_0.gguf")], "gguf", "Tiny-Q8_0.gguf"),
        ([("--jinja", "--embeddings --pooling last")], "kind", "embedding"),
        ([("--jinja", "--reranking")], "kind", "score"),
        ([("acme/Tiny-GGUF", "acme/Tiny-Embedding-GGUF")], "kind", None),
        ([("--port {port}", "")], "api", {"port": 8080, "listen": "management"}),
        ([("--jinja", "--lora-scaled-of-a-fork 3")], "accept", "a recipe gives it to its image"),
        ([("--n-gpu-layers {n_gpu_layers}", "-ngl 20 -ctk q8_0"), ("--jinja", "")], "args", NGL),
    ],
)
def test_each_form_of_an_option_is_the_key_that_stands_for_it(
    edits: list[tuple[str, str]], key: str, value: object
) -> None:
    unit, _ = taken(edited(*edits), **GIVEN)
    found: Any = unit.get(key)
    if key == "accept":
        assert list(found) == ["lora-scaled-of-a-fork"]
    else:
        assert found == value


@pytest.mark.parametrize(
    ("edits", "given", "file"),
    [
        ([("-hf {model}", "-hf acme/Tiny-GGUF -hff q/tiny.gguf")], (), "q/tiny.gguf"),
        (
            [("-hf {model}", "-m /root/.cache/huggingface/hub/models--acme--Tiny-GGUF/snapshots/0123456/q/tiny.gguf")],
            (),
            "q/tiny.gguf",
        ),
        ([], ("tiny-Q8_0.gguf",), "tiny-Q8_0.gguf"),
    ],
)
def test_the_file_of_the_model_is_the_one_of_the_recipe_or_the_one_that_is_given(
    edits: list[tuple[str, str]], given: tuple[str, ...], file: str
) -> None:
    unit, found = taken(edited(*edits), **{**GIVEN, "gguf": given})
    assert unit["gguf"] == file
    assert found.models["tiny"]["source"] == "acme/Tiny-GGUF"
    assert found.models["tiny"]["files"] == [file]


@pytest.mark.parametrize(
    ("edits", "choices", "warning"),
    [
        ([], {"gguf": ("tiny-Q4_0.gguf",)}, "gguf: the recipe serves Q8_0, which the name of tiny-Q4_0.gguf does not"),
        ([], {}, "mmproj: a model of pictures has a projector, which --hf-repo would load too"),
        (
            [("served_model_name: tiny", "alias: x")],
            {},
            "alias: clients that asked for the file of its model find it as",
        ),
        ([("served_model_name: tiny", "served_model_name: 'a b'")], {}, "alias: clients that asked for a b find it as"),
        ([("-hf", "-kvu -np 4 -hf")], {}, "context: 4 sequences share 8192 tokens (kv-unified); one of them may still"),
        ([("-hf", "-np 3 -hf")], {}, "context: 8192 tokens of --ctx-size are written as 3 x 2730"),
        ([("--no-mmap", "--mlock")], {}, "--mlock: left out: is set: a mapped file is in memory twice"),
        ([("--jinja", "--api-key sk-x")], {}, "--api-key: a secret does not belong in a file; the unit takes it from"),
    ],
)
def test_what_is_set_or_counted_in_another_way_is_a_warning(
    edits: list[tuple[str, str]], choices: dict[str, Any], warning: str
) -> None:
    _, found = taken(edited(*edits), **{**GIVEN, "sequences": None if "-np" in str(edits) else 2, **choices})
    assert any(line.startswith(warning) for line in found.warnings), found.warnings


def test_a_recipe_that_says_so_gives_no_warning_of_a_projector() -> None:
    for edit in (("--jinja", "--no-mmproj"), ("max_nodes: 1", "mmproj: false")):
        unit, found = taken(edited(edit), **GIVEN)
        assert unit["args"].get("mmproj-auto") == (False if "--no-mmproj" in edit else None)
        assert "no-mmproj" not in unit["args"]
        assert not any(line.startswith("mmproj") for line in found.warnings)


RPC = "nodes: the recipe is for several nodes, which llama.cpp joins by RPC: it has no key and no time limit; take a"


@pytest.mark.parametrize(
    ("edits", "choices", "expected"),
    [
        ([("max_nodes: 1", "min_nodes: 2")], {}, RPC),
        ([("max_nodes: 1", "cluster_only: true")], {}, RPC),
        ([("n_gpu_layers", "pipeline_parallel: 2, n_gpu_layers")], {}, RPC),
        (
            [("--jinja", "--rpc 10.0.0.1:50052")],
            {},
            "args.rpc: --rpc hands layers to workers without a key and without",
        ),
        ([("b11236", "b8094")], {}, "version: llama.cpp b8094: its options are unknown; give --version (b10001 to b"),
        (
            [("b11236-cu131", "cu131")],
            {},
            "version: the recipe does not say which llama.cpp is in its image; give --ver",
        ),
        ([], {"gguf": ()}, "gguf: the file of Q8_0 is known to the hub only; give --gguf, for several parts the first"),
        (
            [],
            {"kv": None},
            "kv: llama.cpp does not say how large its cache is before it starts; give --kv, the `KV buff",
        ),
        ([], {"memory": 0.5}, "memory: llama.cpp takes no share of a node; leave --memory out, and give --kv"),
        (
            [],
            {"sequences": None},
            "sequences: the recipe leaves it to llama.cpp how many run at once; give --sequences",
        ),
        (
            [("ctx_size: 8192", "ctx_size: 0")],
            {},
            "context: the recipe does not say how long a sequence can be; give --",
        ),
        (
            [("max_nodes: 1", "mmproj: auto")],
            {},
            "mmproj: the file of the projector is known to the hub only; give --g",
        ),
        (
            [("--jinja", "-hfd acme/Draft:Q4")],
            {},
            "command: --spec-draft-hf acme/Draft:Q4: names a draft without its f",
        ),
        (
            [("--jinja", "-m /data/x.gguf")],
            {},
            "command: serves /data/x.gguf, which is not a model on the hub; write O",
        ),
        ([("--flash-attn on", "--flash-attn")], {}, "command: --flash-attn has no value; correct a copy of the recipe"),
        ([("max_nodes: 1", "env: {LLAMA_ARG_CACHE_REUSE: '256'}")], {}, "env.LLAMA_ARG_CACHE_REUSE: sets an option of"),
        (
            [("--jinja", "--api-prefix /x")],
            {},
            "args.api-prefix: --api-prefix moves the paths of the API, which the pr",
        ),
    ],
)
def test_what_a_unit_of_llama_cpp_cannot_have_is_refused_with_what_to_do(
    edits: list[tuple[str, str]], choices: dict[str, Any], expected: str
) -> None:
    found = refusal(edited(*edits), **choices)
    assert any(line.startswith(expected) for line in found), found


def test_the_size_of_a_cache_is_refused_for_an_engine_that_computes_it() -> None:
    text = "model: acme/Tiny\nruntime: vllm\ncontainer: acme/vllm:0.33.0\ndefaults: {max_model_len: 4096}\n"
    assert any(line.startswith("kv: --kv is for llama.cpp") for line in refusal(text, kv="2G", memory=0.8))
