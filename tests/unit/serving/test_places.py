"""Options of a unit that name what its container does not have."""

from __future__ import annotations

from typing import Any

import pytest

from serving.container_paths import container_files, named_places, variable_places
from serving.options import served_units
from tests.unit.model.serving_racks import QWEN, SGLANG, loaded, refusals, text, unit

P = "serving.units.qwen.args"
SCRATCH = "/tmp/x"  # noqa: S108 - in a container
NEITHER = "is a repository or a path that does not begin with /: the container has neither"


def model(key: str) -> str:
    model = "declare it in models, list its name at also and write /models/NAME"
    return f"{NEITHER}; {model}, or give the reason why the container has it at accept.{key}"


def file(key: str) -> str:
    right = "list the file at files and write its path there"
    return f"{NEITHER}; {right}, or give the reason why the container has it at accept.{key}"


def place(path: str, key: str) -> str:
    right = f"list it at files, like {{{path}: FILE}}, or give the reason why the container has it at accept.{key}"
    return f"is not in the container; {right}"


NO_TEXT = "the engine completes no text with it, and a completion proves a unit; remove it"

COPIES = "2 copies of a model that is split over 2 nodes need 4 GPUs; remove it; a further unit serves a further copy"


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
            f"nvidia/draft-Eagle3 {model('speculative-config')}",
        ),
        (
            vllm({"speculative-config": {"method": "eagle3", "model": "/models/other"}}),
            "speculative-config",
            "/models/other is not in the container; write also: [other]",
        ),
        (vllm({"chat-template": "./t.jinja"}), "chat-template", f"./t.jinja {file('chat-template')}"),
        (vllm({"chat-template": "t.jinja"}), "chat-template", f"t.jinja {file('chat-template')}"),
        (vllm({"chat-template": "~/t.jinja"}), "chat-template", f"~/t.jinja {file('chat-template')}"),
        (
            vllm({"chat-template": "/models/qwen/../other/t.jinja"}),
            "chat-template",
            "/models/qwen/../other/t.jinja is not in the container; write also: [other]",
        ),
        (vllm({"tokenizer": "owner/tokenizer"}), "tokenizer", f"owner/tokenizer {model('tokenizer')}"),
        (
            vllm({"tool-parser-plugin": "/home/ops/p.py"}),
            "tool-parser-plugin",
            f"/home/ops/p.py {place('/home/ops/p.py', 'tool-parser-plugin')}",
        ),
        (
            vllm({"enable-lora": True, "lora-modules": ["a=/models/qwen/lora", "b=owner/lora"]}),
            "lora-modules",
            f"owner/lora {model('lora-modules')}",
        ),
        (
            vllm({"enable-lora": True, "lora-modules": '{"name": "a", "path": "owner/lora"}'}),
            "lora-modules",
            f"owner/lora {model('lora-modules')}",
        ),
        (
            vllm({"generation-config": "/cache/generation"}, cache="none"),
            "generation-config",
            f"/cache/generation {place('/cache/generation', 'generation-config')}",
        ),
        (
            sglang({"speculative-draft-model-path": "owner/draft"}),
            "speculative-draft-model-path",
            f"owner/draft {model('speculative-draft-model-path')}",
        ),
        (
            sglang({"init-expert-location": "s3://bucket/experts.json"}),
            "init-expert-location",
            (
                "s3://bucket/experts.json is fetched over the network, and the rack serves without one; list a file at "
                "files and write its path there, or give the reason why the container has it at "
                "accept.init-expert-location"
            ),
        ),
        (sglang({"lora-paths": ["a=owner/lora"]}), "lora-paths", f"owner/lora {model('lora-paths')}"),
    ],
)
def test_a_place_that_the_container_does_not_have_is_refused(file: str, key: str, expected: str) -> None:
    assert refusals(file) == [f"{P}.{key} @ {key}: {expected}"]


@pytest.mark.parametrize(
    "file",
    [
        vllm({"chat-template": "/models/qwen/chat_template.jinja", "generation-config": "vllm"}),
        vllm(
            {"chat-template": "/vllm-workspace/examples/tool_chat_template_hermes.jinja"},
            accept={"chat-template": "the image has its examples"},
        ),
        vllm({"speculative-config": {"method": "eagle3", "model": "/models/other"}}, also=["other"]),
        sglang({"speculative-draft-model-path": "/models/other"}, also=["other"]),
        vllm({"served-model-name": "owner/name", "tokenizer-revision": "refs/1"}),
        vllm({"otlp-traces-endpoint": "http://10.77.0.1:4317/v1"}),
        vllm({}, env={"A_TABLE": "/models/qwen/table.json", "B_CACHE": SCRATCH, "C": "1/2", "TZ": "Europe/Berlin"}),
        vllm({"chat-template": "{% for m in messages %}{{ m.role }}/{% endfor %}"}),
        vllm({"speculative-config": {"method": "ngram", "model": "ngram", "num_speculative_tokens": 3}}),
        vllm({"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}),
        vllm({"generation-config": "/cache/generation"}, cache="20G"),
        vllm({"root-path": "/qwen", "reasoning-parser": "qwen3"}),
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
    units = served_units(loaded(vllm(args, cache="20G", accept={"tool-parser-plugin": "the image has it"})))
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
                *("root-path", "fastapi-root-path", "file-storage-path", "weights-save-path", "trace-export-path"),
                *("served-model-name", "revision", "code-revision"),
            )
        ),
        ("lora-modules", ["a=/x", "/y", '{"name": "a", "path": "/z"}', {"lora_path": "/w"}], ["/x", "/y", "/z", "/w"]),
        ("lora-paths", "a=/x", ["/x"]),
        ("default-mm-loras", '{"image": "/x", "audio": "/y", "n": 5}', ["/x", "/y"]),
        ("speculative-config", {"model": "/d", "tokenizer": "/t", "method": "m"}, ["/d", "/t"]),
        ("speculative-config", '{"model": "/d"}', ["/d"]),
        ("quantization", "/a/b", ["/a/b"]),
        ("allowed-local-media-path", "/media", ["/media"]),
        ("x", "owner/name", ["owner/name"]),
        ("x", "1/2", []),
        ("x", "/no_think, please", []),
        ("x", "a=../b", ["../b"]),
        ("x", "http://a/b", []),
        ("x", {"a": [{"b": "/c"}, '["/d", {"e": "owner/f"}]']}, ["/c", "/d", "owner/f"]),
        ("speculative-config", '{"model"', []),
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


@pytest.mark.parametrize(
    ("name", "value", "places"),
    [
        ("LMCACHE_CONFIG_FILE", "/etc/x.yaml", ["/etc/x.yaml"]),
        ("LD_LIBRARY_PATH", "/a/lib:/b/lib:/tmp/c", ["/a/lib", "/b/lib"]),
        ("LD_PRELOAD", "/a.so /b.so", ["/a.so", "/b.so"]),
        ("A_MODEL", "owner/draft", ["owner/draft"]),
        ("A_CONFIG", '{"draft": "owner/draft", "table": "/t"}', ["owner/draft", "/t"]),
        ("A_URL", "redis://host:1/0", []),
        ("A_DIRECTORY", SCRATCH, []),
        ("TZ", "Europe/Berlin", []),
        ("A", "/", []),
    ],
)
def test_the_places_that_a_variable_names_are_found(name: str, value: str, places: list[str]) -> None:
    assert list(variable_places(name, value)) == places


@pytest.mark.parametrize(
    ("keys", "path", "line", "expected"),
    [
        ({"env": {"A_FILE": "/etc/x.yaml"}}, "env.A_FILE", "A_FILE", f"/etc/x.yaml {place('/etc/x.yaml', 'A_FILE')}"),
        ({"env": {"A_MODEL": "owner/draft"}}, "env.A_MODEL", "A_MODEL", f"owner/draft {model('A_MODEL')}"),
        (
            {"env": {"A_FILE": "/models/other/x"}},
            "env.A_FILE",
            "A_FILE",
            "/models/other/x is not in the container; write",
        ),
        (
            {"env": {"A_FILE": "/models/none/x"}},
            "env.A_FILE",
            "A_FILE",
            "/models/none/x is not in the container; declare the model in models and list its name at also, or give",
        ),
        (
            {"env": {"A_FILE": "/proc/1/x"}},
            "env.A_FILE",
            "A_FILE",
            "/proc/1/x is not in the container; give the reason why the container has it at accept.A_FILE",
        ),
        (
            {"before": ["bash", "/opt/fix.sh"]},
            "before.1",
            "- /opt/fix.sh",
            f"/opt/fix.sh {place('/opt/fix.sh', 'before')}",
        ),
    ],
)
def test_a_variable_and_a_program_before_name_what_the_container_has(
    keys: dict[str, Any], path: str, line: str, expected: str
) -> None:
    (found,) = refusals(vllm({}, **keys))
    assert found.startswith(f"serving.units.qwen.{path} @ {line}: {expected}")


def test_a_place_of_the_image_needs_a_reason() -> None:
    for folder in ("/app", "/opt", "/usr", "/vllm-workspace", "/workspace"):
        assert len(refusals(vllm({"chat-template": f"{folder}/t"}))) == 1
        assert refusals(vllm({"chat-template": f"{folder}/t"}, accept={"chat-template": "the image has it"})) == []


def test_what_is_in_the_compile_cache_is_not_looked_up() -> None:
    args = {"chat-template": "/usr/t", "generation-config": "/cachex/../usr/g", "tool-parser-plugin": "/cache"}
    accept = {"chat-template": "in the image", "generation-config": "in the image"}
    units = served_units(loaded(vllm(args, cache="20G", accept=accept)))
    assert container_files(units["qwen"]) == ["/usr/g", "/usr/t"]
