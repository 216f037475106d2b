"""Options of a unit that name what its container does not have."""

from __future__ import annotations

from typing import Any

import pytest

from serving.container_paths import container_files, named_places
from serving.options import served_units
from tests.unit.model.serving_racks import QWEN, SGLANG, loaded, refusals, text, unit

P = "serving.units.qwen.args"
NEITHER = "is a repository or a path that does not begin with /: the container has neither"
FILE = "put the file into the model and write /models/qwen/FILE, or name one of the image"
DRAFT = "remove the draft model: a unit has one model"


def vllm(args: dict[str, Any], **keys: Any) -> str:
    return text({"qwen": unit(QWEN, **{"version": "0.25.1", **keys}, args=args)})


def sglang(args: dict[str, Any], **keys: Any) -> str:
    return text({"qwen": unit(QWEN, engine="sglang", version="0.5.23", image=SGLANG, **keys, args=args)})


@pytest.mark.parametrize(
    ("file", "key", "expected"),
    [
        (
            vllm({"speculative-config": {"method": "eagle3", "model": "nvidia/draft-Eagle3"}}),
            "speculative-config",
            f"nvidia/draft-Eagle3 {NEITHER}; {DRAFT}",
        ),
        (
            vllm({"speculative-config": {"method": "eagle3", "model": "/models/other"}}),
            "speculative-config",
            f"/models/other is not in the container; {DRAFT}",
        ),
        (vllm({"chat-template": "./t.jinja"}), "chat-template", f"./t.jinja {NEITHER}; {FILE}"),
        (vllm({"chat-template": "t.jinja"}), "chat-template", f"t.jinja {NEITHER}; {FILE}"),
        (vllm({"chat-template": "~/t.jinja"}), "chat-template", f"~/t.jinja {NEITHER}; {FILE}"),
        (
            vllm({"chat-template": "/models/qwen/../other/t.jinja"}),
            "chat-template",
            f"/models/qwen/../other/t.jinja is not in the container; {FILE}",
        ),
        (vllm({"tokenizer": "owner/tokenizer"}), "tokenizer", f"owner/tokenizer {NEITHER}; {FILE}"),
        (
            vllm({"tool-parser-plugin": "/home/ops/p.py"}),
            "tool-parser-plugin",
            f"/home/ops/p.py is not in the container; {FILE}",
        ),
        (
            vllm({"enable-lora": True, "lora-modules": ["a=/usr/lora", "b=owner/lora"]}),
            "lora-modules",
            f"owner/lora {NEITHER}; {FILE}",
        ),
        (
            vllm({"enable-lora": True, "lora-modules": '{"name": "a", "path": "owner/lora"}'}),
            "lora-modules",
            f"owner/lora {NEITHER}; {FILE}",
        ),
        (
            vllm({"generation-config": "/cache/generation"}),
            "generation-config",
            f"/cache/generation is not in the container; {FILE}",
        ),
        (
            sglang({"speculative-draft-model-path": "owner/draft"}),
            "speculative-draft-model-path",
            f"owner/draft {NEITHER}; {DRAFT}",
        ),
        (
            sglang({"init-expert-location": "s3://bucket/experts.json"}),
            "init-expert-location",
            f"s3://bucket/experts.json is fetched over the network, and the rack serves without one; {FILE}",
        ),
        (sglang({"lora-paths": ["a=owner/lora"]}), "lora-paths", f"owner/lora {NEITHER}; {FILE}"),
    ],
)
def test_a_place_that_the_container_does_not_have_is_refused(file: str, key: str, expected: str) -> None:
    assert refusals(file) == [f"{P}.{key} @ {key}: {expected}"]


@pytest.mark.parametrize(
    "file",
    [
        vllm({"chat-template": "/models/qwen/chat_template.jinja", "generation-config": "vllm"}),
        vllm({"chat-template": "/vllm-workspace/examples/tool_chat_template_hermes.jinja"}),
        vllm({"chat-template": "{% for m in messages %}{{ m.role }}/{% endfor %}"}),
        vllm({"speculative-config": {"method": "ngram", "model": "ngram", "num_speculative_tokens": 3}}),
        vllm({"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}),
        vllm({"generation-config": "/cache/generation"}, cache="20G"),
        vllm({"root-path": "/qwen", "allowed-local-media-path": "/media", "reasoning-parser": "qwen3"}),
        sglang({"chat-template": "chatml", "tokenizer-mode": "auto", "init-expert-location": "trivial"}),
    ],
)
def test_a_place_that_the_container_has_or_may_have_is_accepted(file: str) -> None:
    assert refusals(file) == []


def test_the_files_that_a_start_needs_are_those_of_the_model_and_of_the_image() -> None:
    args = {
        "chat-template": "/models/qwen/./t.jinja",
        "tool-parser-plugin": "/usr/share/p.py",
        "generation-config": "/cache/g",
    }
    units = served_units(loaded(vllm(args, cache="20G")))
    assert container_files(units["qwen"]) == ["/models/qwen/t.jinja", "/usr/share/p.py"]


@pytest.mark.parametrize(
    ("key", "value", "places"),
    [
        *(
            (key, "/a/b", ["/a/b"])
            for key in (
                *("tokenizer", "generation-config", "spec-model", "speculative-draft-model"),
                *("speculative-token-map", "init-expert-location", "deepep-config", "speculative-adaptive-config"),
                *("dllm-algorithm-config", "chat-template", "tool-parser-plugin", "quantization-param-path"),
                *("elastic-config-file", "x-input-file"),
            )
        ),
        *(
            (key, "/a/b", [])
            for key in (
                *("root-path", "fastapi-root-path", "allowed-local-media-path", "file-storage-path"),
                *("weights-save-path", "trace-export-path", "quantization", "tokenizer-mode"),
            )
        ),
        ("lora-modules", ["a=/x", "/y", '{"name": "a", "path": "/z"}', {"lora_path": "/w"}], ["/x", "/y", "/z", "/w"]),
        ("lora-paths", "a=/x", ["/x"]),
        ("default-mm-loras", '{"image": "/x", "audio": "/y", "n": 5}', ["/x", "/y"]),
        ("speculative-config", {"model": "/d", "tokenizer": "/t", "method": "/m"}, ["/d", "/t"]),
        ("speculative-config", '{"model": "/d"}', ["/d"]),
        ("speculative-config", "/d", []),
        ("speculative-config", '{"model"', []),
        ("chat-template", {"path": "/x"}, []),
        ("chat-template", ["/x", "t.jinja", "word", 5, None], ["/x", "t.jinja"]),
        ("chat-template", "a/b\nc", []),
        ("chat-template", "~x", ["~x"]),
        *(
            ("tokenizer", f"a.{ending}", [f"a.{ending}"])
            for ending in (
                *("bin", "gguf", "jinja", "jinja2", "json", "jsonl", "model", "pt", "py", "safetensors", "txt"),
                *("yml", "yaml"),
            )
        ),
        ("tokenizer", "a.exe", []),
        ("tokenizer", "a b.json", []),
    ],
)
def test_the_places_that_an_option_names_are_found(key: str, value: object, places: list[str]) -> None:
    assert list(named_places(key, value)) == places


@pytest.mark.parametrize("folder", ["/app", "/opt", "/sgl-workspace", "/usr", "/vllm-workspace", "/workspace"])
def test_an_image_may_have_files_in_its_own_folders_alone(folder: str) -> None:
    assert refusals(vllm({"chat-template": f"{folder}/t"})) == []
    assert len(refusals(vllm({"chat-template": f"{folder}x/t"}))) == 1


def test_what_is_in_the_compile_cache_is_not_looked_up() -> None:
    args = {"chat-template": "/usr/t", "generation-config": "/cachex/../usr/g", "tool-parser-plugin": "/cache"}
    units = served_units(loaded(vllm(args, cache="20G")))
    assert container_files(units["qwen"]) == ["/usr/g", "/usr/t"]
