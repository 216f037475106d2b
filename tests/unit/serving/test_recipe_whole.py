"""All that a recipe's container needs comes over with it: drafts, mods, files, options of a fork; or it is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from serving.accepted import engine_arguments
from serving.options import served_units
from sparkrack.serving.recipe import ImportedUnit, RecipeChoices, import_recipe
from sparkrack.serving.recipe_options import proof_kind
from sparkrack.serving.recipe_registry import RecipeSource, folder_registries
from sparkrack.serving.recipe_text import RecipeError
from tests.unit.model.serving_racks import machines

LINE = "vllm serve {model} --max-model-len 4096 --max-num-seqs 4 --gpu-memory-utilization 0.8"
SGLANG_LINE = (
    "sglang serve --model-path {model} --context-length 4096 --max-running-requests 4 --mem-fraction-static 0.8"
)


def recipe(more: str = "", line: str = LINE, **keys: str) -> str:
    """A recipe of one line, with more options, and with other keys."""
    kind = "sglang:0.5.23" if line == SGLANG_LINE else "vllm:0.33.0"
    lines = {"model": "acme/Tiny", "container": f"acme/{kind}", **keys}
    return "".join(f"{key}: {value}\n" for key, value in lines.items()) + f"command: |\n  {line} {more}\n"


@pytest.fixture
def source(tmp_path: Path) -> RecipeSource:
    """A recipe in a registry with three mods: a template, a download, and one that changes its node."""
    for name, lines in {
        "template": ["cp chat.jinja $WORKSPACE_DIR/fixed.jinja", "echo done > mark"],
        "download": [
            "# curl is named in a comment",
            "echo curl",
            "if curl -L https://example.org/x | patch -p1; then",
            "fi",
        ],
        "node": ["echo 3 > /proc/sys/vm/drop_caches"],
        "wheel": ["pip install --no-index ./parser.whl"],
    }.items():
        folder = tmp_path / "registry/mods" / name
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
    (tmp_path / "registry/mods/template/chat.jinja").write_text("{{ messages }}")
    (tmp_path / "registry/recipes").mkdir()
    path = tmp_path / "registry/recipes/tiny.yaml"
    path.write_text("")
    registries = folder_registries(tmp_path / "registry", "acme")
    return RecipeSource(path, registries[0], registries)


def taken(text: str, source: RecipeSource | None = None, **choices: Any) -> tuple[dict[str, Any], ImportedUnit]:
    """The unit of a recipe, and all of it."""
    found = import_recipe(text, RecipeChoices(**{"name": "tiny", "nodes": ("n0",), **choices}), source)
    (unit,) = found.units.values()
    return dict(unit), found


def arguments(found: ImportedUnit, folder: Path) -> list[str]:
    """The arguments that the unit renders in a rack with what was imported."""
    for name, content in found.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "rack.yaml").write_text(machines(8) + found.yaml())
    return engine_arguments(served_units(load(folder / "rack.yaml"))["tiny"])


def problems(text: str, source: RecipeSource | None = None) -> tuple[str, ...]:
    with pytest.raises(RecipeError) as caught:
        taken(text, source)
    return caught.value.problems


@pytest.mark.parametrize(
    ("more", "line", "keys", "key", "value"),
    [
        (
            """--speculative-config '{"model":"acme/Draft","num_speculative_tokens":7,"revision":"abc"}'""",
            LINE,
            {},
            "speculative-config",
            {"model": "/models/draft", "num_speculative_tokens": 7, "revision": "abc"},
        ),
        (
            """--speculative-config '{"model":"/drafter","num_speculative_tokens":7}'""",
            LINE,
            {"draft_model": "acme/Draft", "volumes": "['~/models/Tiny:/model:ro', '~/models/Draft:/drafter:ro']"},
            "speculative-config",
            {"model": "/models/draft", "num_speculative_tokens": 7},
        ),
        (
            "--speculative-draft-model-path acme/Draft",
            SGLANG_LINE,
            {},
            "speculative-draft-model-path",
            "/models/draft",
        ),
        ("--tokenizer acme/Draft", LINE, {}, "tokenizer", "/models/draft"),
        (
            "--lora-modules sql=acme/Draft",
            LINE,
            {"distribution_config": "{models: {entries: [{name: '{model}'}, {name: acme/Draft, revision: abc}]}}"},
            "lora-modules",
            "sql=/models/draft",
        ),
        (
            "--tokenizer /root/.cache/huggingface/hub/models--acme--Draft/snapshots/0123456789ab/sub",
            LINE,
            {},
            "tokenizer",
            "/models/draft/sub",
        ),
    ],
)
def test_a_second_model_is_mounted_and_named_by_its_place(
    more: str, line: str, keys: dict[str, str], key: str, value: object, tmp_path: Path
) -> None:
    unit, found = taken(recipe(more, line, **keys))
    assert unit["also"] == ["draft"]
    assert unit["args"][key] == value
    assert "accept" not in unit
    assert found.models["tiny"] == {"source": "acme/Tiny"}
    assert found.models["draft"]["source"] == "acme/Draft"
    assert found.models["draft"].get("revision", "abc") in ("abc", "0123456789ab")
    assert f"--{key}" in arguments(found, tmp_path)


def test_an_option_of_another_engine_that_a_key_stands_for_is_refused() -> None:
    found = problems(recipe("--max-model-len 4096", SGLANG_LINE))
    assert (
        found[0] == "args.max-model-len: --max-model-len follows from the key context of the unit; remove it from args"
    )


def test_two_models_of_one_name_have_names_of_their_own() -> None:
    unit, found = taken(recipe("--tokenizer other/Tiny"))
    assert (unit["model"], unit["also"], unit["args"]["tokenizer"]) == ("tiny", ["other-tiny"], "/models/other-tiny")
    assert found.models["other-tiny"] == {"source": "other/Tiny"}


def test_a_mod_becomes_files_and_a_script_before_the_engine(source: RecipeSource, tmp_path: Path) -> None:
    unit, found = taken(recipe("--chat-template fixed.jinja", mods="[mods/template]"), source)
    assert unit["files"] == {"/workspace/recipe": "recipes/tiny"}
    assert unit["before"] == ["bash", "/workspace/recipe/before.sh"]
    assert unit["accept"] == {
        "chat-template": "mods/template of recipe tiny of acme puts fixed.jinja there before the engine starts"
    }
    assert sorted(found.files) == [
        f"recipes/tiny/{name}" for name in ("before.sh", "mods/template/chat.jinja", "mods/template/run.sh")
    ]
    assert "fixed.jinja" in arguments(found, tmp_path / "rack")


def run_before(found: ImportedUnit, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script as a container would, with /workspace in a folder, from a working folder in it."""
    inside = folder / "workspace"
    for name, content in found.files.items():
        path = inside / "recipe" / Path(name).relative_to("recipes/tiny")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    script = inside / "recipe/before.sh"
    text = script.read_text().replace("/workspace/", f"{inside}/")
    (inside / "start").mkdir()
    return subprocess.run(["bash", "-c", text], cwd=inside / "start", capture_output=True, text=True, check=False)


def test_the_script_runs_each_mod_in_a_copy_with_the_folder_of_the_engine(source: RecipeSource, tmp_path: Path) -> None:
    commands = "[mkdir -p $PWD/made, 'cd /; true']"
    _, found = taken(recipe("--chat-template fixed.jinja", mods="[template]", pre_exec=commands), source)
    done = run_before(found, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    inside = tmp_path / "workspace"
    assert (inside / "start/fixed.jinja").read_text() == "{{ messages }}"
    assert (inside / "start/made").is_dir()
    assert (inside / "mods/template/mark").is_file()
    assert not (inside / "recipe/mods/template/mark").exists()


def test_the_name_of_a_registry_cannot_end_the_comment_of_the_script(source: RecipeSource, tmp_path: Path) -> None:
    assert source.registry is not None
    named = replace(source, registry=replace(source.registry, name="acme\ntouch later"))
    _, found = taken(recipe(pre_exec="['true']"), named)
    assert run_before(found, tmp_path).returncode == 0
    assert not (tmp_path / "workspace/start/later").exists()


def test_a_name_that_is_not_one_of_a_unit_is_refused_and_nothing_is_written(
    source: RecipeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a/b/c"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RecipeError, match=r"cannot be the name of a unit"):
        taken(recipe(mods="[template]"), source, name="../../../x")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("commands", ["['false', touch later]", "['exit 3', touch later]"])
def test_the_script_ends_at_the_first_command_that_fails(commands: str, source: RecipeSource, tmp_path: Path) -> None:
    _, found = taken(recipe(pre_exec=commands), source)
    assert run_before(found, tmp_path).returncode != 0
    assert not (tmp_path / "workspace/start/later").exists()


def test_a_file_beside_the_recipe_comes_over(source: RecipeSource, tmp_path: Path) -> None:
    assert source.path is not None
    (source.path.parent / "own.jinja").write_text("text")
    commands = "[{copy: own.jinja, dest: /opt/engine/own.jinja}]"
    unit, found = taken(recipe("--chat-template own.jinja", pre_exec=commands), source)
    assert unit["files"] == {"/workspace/recipe": "recipes/tiny"}
    assert found.files["recipes/tiny/copies/own.jinja"] == b"text"
    assert b"cp /workspace/recipe/copies/own.jinja /opt/engine/own.jinja" in found.files["recipes/tiny/before.sh"]
    plain, found = taken(recipe("--chat-template own.jinja"), source)
    assert plain["args"]["chat-template"] == "/workspace/recipe/files/own.jinja"
    assert "before" not in plain
    assert arguments(found, tmp_path / "rack")[:2] == ["--chat-template", "/workspace/recipe/files/own.jinja"]


@pytest.mark.parametrize(
    ("more", "keys", "problem"),
    [
        ("", {"mods": "[absent]"}, "mods: absent: is not in acme; name a registry that has it with --registry"),
        ("", {"mods": "['@other/template']"}, "mods: @other/template: is not in acme; name a registry that has it"),
        ("", {"mods": "[../mods/../../x]"}, "mods: ../mods/../../x: is not in acme; name a registry that has it"),
        ("", {"mods": "[download]"}, "mods: download: loads from the network (curl), which a unit does not have; give"),
        (
            "",
            {"mods": "[node]"},
            "mods: node: changes the node (> /proc/sys/), which a unit cannot; remove it from a",
        ),
        ("", {"pre_exec": "[pip install x]"}, "pre_exec: loads from the network (pip install), which a unit does not"),
        ("", {"pre_exec": "[{copy: /etc/x, dest: /x}]"}, "pre_exec: copy /etc/x: is not a file beside the recipe; put"),
        (
            "--chat-template x.jinja",
            {},
            "args.chat-template: x.jinja is not in the container, and the recipe does not b",
        ),
        ("--chat-template https://x.org/t", {}, "args.chat-template: https://x.org/t is not in the container, and the"),
        ("--tokenizer /root/.cache/huggingface/x", {}, "args.tokenizer: /root/.cache/huggingface/x is not in the con"),
        ("", {"draft_model": "draft"}, "model draft: is not one on the hub; write OWNER/NAME"),
        ("--max-num-batched-tokens many", {}, "args.max-num-batched-tokens: --max-num-batched-tokens takes a whole"),
    ],
)
def test_what_the_recipe_does_not_bring_is_refused_with_what_to_do(
    more: str, keys: dict[str, str], problem: str, source: RecipeSource
) -> None:
    (found,) = problems(recipe(more, **keys), source)
    assert found.startswith(problem)


def test_a_mod_that_installs_its_own_files_needs_no_network(source: RecipeSource) -> None:
    unit, _ = taken(recipe(mods="[wheel, download]").replace(", download", ""), source)
    assert unit["before"]


@pytest.mark.parametrize(
    ("more", "line", "key", "value", "words"),
    [
        ("--gdn-decode-kernel fast", LINE, "gdn-decode-kernel", "fast", ["--gdn-decode-kernel", "fast"]),
        ("--fork_flag --seed 5", LINE, "fork-flag", True, ["--fork-flag"]),
        ("--fork-sizes 1 2 4 --seed 5", LINE, "fork-sizes", [1, 2, 4], ["--fork-sizes", "1", "2", "4"]),
        ("--moe-backend b13x", LINE, "moe-backend", "b13x", ["--moe-backend", "b13x"]),
        ("""--fork-config '{"a":[1]}'""", LINE, "fork-config", {"a": [1]}, ["--fork-config", '{"a":[1]}']),
        ("--fork.deep.er 2", LINE, "fork", {"deep": {"er": 2}}, ["--fork", '{"deep":{"er":2}}']),
    ],
)
def test_an_option_of_a_fork_is_accepted_with_the_recipe_as_reason(
    more: str, line: str, key: str, value: object, words: list[str], tmp_path: Path
) -> None:
    unit, found = taken(recipe(more, line))
    assert unit["args"][key] == value
    assert unit["accept"][key].startswith("the recipe gives it to its image; by the table it ")
    assert sum(line.startswith(f"args.{key}: accepted, since the recipe has it") for line in found.warnings) == 1
    given = arguments(found, tmp_path)
    start = given.index(words[0])
    assert given[start : start + len(words)] == words


@pytest.mark.parametrize(
    ("more", "key", "value", "word"),
    [
        ("--no-enable-prefix-caching", "enable-prefix-caching", False, "--disable-prefix-caching"),
        ("--no-disable-custom-all-reduce", "disable-custom-all-reduce", False, "--enable-custom-all-reduce"),
    ],
)
def test_a_negated_option_of_older_releases_keeps_its_meaning(
    more: str, key: str, value: object, word: str, tmp_path: Path
) -> None:
    unit, found = taken(recipe(more))
    assert unit["args"][key] is value
    assert found.warnings == ()
    assert word in arguments(found, tmp_path)


def test_an_option_with_several_values_that_was_renamed_keeps_them() -> None:
    unit, found = taken(recipe("--cuda-graph-bs 1 2 4", SGLANG_LINE))
    assert unit["args"]["cuda-graph-bs-decode"] == [1, 2, 4]
    assert found.warnings == ("--cuda-graph-bs: is called --cuda-graph-bs-decode in this release",)


def test_a_share_in_gib_is_counted_and_stays() -> None:
    unit, found = taken(recipe("--gpu-memory-utilization-gb 96").replace("--gpu-memory-utilization 0.8", ""))
    assert unit["memory"] == 0.78
    assert unit["args"]["gpu-memory-utilization-gb"] == 96
    assert found.warnings[0] == "memory: 96 GiB of --gpu-memory-utilization-gb are counted as the share 0.78"
    chosen, found = taken(recipe("--gpu-memory-utilization-gb 112"), memory=0.9)
    assert chosen["memory"] == 0.9
    assert "gpu-memory-utilization-gb" not in chosen["args"]
    assert found.warnings[0] == "--gpu-memory-utilization-gb: 112 is replaced by --memory"


def test_a_place_that_the_recipe_has_in_its_image_is_accepted() -> None:
    unit, _ = taken(recipe("--chat-template examples/t.jinja", env="{VLLM_TUNED_CONFIG_FOLDER: /workspace/moe}"))
    assert unit["accept"] == {
        "chat-template": "the recipe has examples/t.jinja in its image in the folder in which it starts",
        "VLLM_TUNED_CONFIG_FOLDER": "the recipe has /workspace/moe in its image",
    }


@pytest.mark.parametrize(
    "line", ["--tp-size 2 --dp-size 2 --enable-dp-attention", "--tp 2 --dp 2 --enable-dp-attention"]
)
def test_copies_of_the_attention_are_one_copy_of_the_model(line: str) -> None:
    unit, _ = taken(recipe(line, SGLANG_LINE), nodes=("n0", "n1"))
    assert (unit["args"]["dp-size"], unit["args"]["enable-dp-attention"]) == (2, True)


@pytest.mark.parametrize(
    ("computed", "args", "models", "kind"),
    [
        ("pooling", {}, "acme/Tiny", "embedding"),
        ("pooling", {}, "acme/Tiny-Reranker-8B", "score"),
        ("auto", {"convert": "classify"}, "acme/Tiny", "score"),
        ("", {"convert": "embed"}, "acme/Tiny", "embedding"),
        ("score", {}, "acme/Tiny", "score"),
        ("embed", {}, "acme/Tiny", "embedding"),
        ("is-embedding", {}, "acme/Tiny", "embedding"),
        ("", {}, "acme/Tiny-Embedding-8B", "embedding"),
        ("", {}, "acme/bge-m3", "embedding"),
        ("", {}, "acme/Embedded-7B", "chat"),
        ("generate", {}, "acme/Tiny-Embedding-8B", "chat"),
    ],
)
def test_what_proves_a_unit_follows_from_its_options_and_names(
    computed: str, args: dict[str, Any], models: str, kind: str
) -> None:
    assert proof_kind(computed, args, models) == kind


@pytest.mark.parametrize("more", ["--runner draft", "--task transcription"])
def test_what_is_neither_text_nor_pooling_is_refused(more: str) -> None:
    (found,) = problems(recipe(more, container="acme/vllm:0.21.0" if "draft" in more else "acme/vllm:0.10.2"))
    assert found == f"command: {more}: a unit is a chat, an embedding or a score"


def test_two_revisions_of_one_model_are_refused_and_one_is_kept() -> None:
    listed = "{models: {entries: [{name: '{model}', revision: abc}]}}"
    _, found = taken(recipe(distribution_config=listed))
    assert found.models == {"tiny": {"source": "acme/Tiny", "revision": "abc"}}
    (problem,) = problems(recipe(distribution_config=listed, model_revision="def"))
    assert problem.startswith("model acme/Tiny: has revision def and abc; write one of them into a copy of the recipe")
