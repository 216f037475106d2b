"""Which files of a model are fetched: by rack.yaml, by an index, or one format of the weights."""

from __future__ import annotations

import pytest

from roles.models.choice import INDEX, Indexes, chosen

PARTS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
ST_INDEX, BIN_INDEX = "model.safetensors.index.json", "pytorch_model.bin.index.json"
CONFIGS = [
    "LICENSE",
    "README.md",
    "chat_template.jinja",
    "config.json",
    "merges.txt",
    "modeling_x.py",
    "tokenizer.model",
]
BINS = ["pytorch_model-00001-of-00001.bin"]


@pytest.mark.parametrize(
    ("listed", "indexes", "left_out"),
    [
        # An index of safetensors: its files and no others.
        (
            [*CONFIGS, ST_INDEX, *PARTS, "extra.safetensors", "consolidated.safetensors", BIN_INDEX, *BINS, "x.gguf"],
            {ST_INDEX: PARTS, BIN_INDEX: BINS},
            {"extra.safetensors", "consolidated.safetensors", *BINS, "x.gguf"},
        ),
        # The same weights for other programs, in folders of their own (gpt-oss: 130 GB of 196 GB).
        (
            [*CONFIGS, ST_INDEX, *PARTS, "original/config.json", "original/model.safetensors", "metal/model.bin"],
            {ST_INDEX: PARTS},
            {"original/model.safetensors", "metal/model.bin"},
        ),
        # Mistral: consolidated weights beside those in parts, or alone.
        (
            [*CONFIGS, ST_INDEX, *PARTS, "consolidated.safetensors.index.json", "consolidated-1.safetensors"],
            {ST_INDEX: PARTS, "consolidated.safetensors.index.json": ["consolidated-1.safetensors"]},
            {"consolidated-1.safetensors"},
        ),
        ([*CONFIGS, "params.json", "consolidated.safetensors"], {}, set()),
        ([*CONFIGS, "consolidated.safetensors", "consolidated.00.pth"], {}, {"consolidated.00.pth"}),
        # No index: all of one format.
        ([*CONFIGS, "model.safetensors", "pytorch_model.bin", "tf_model.h5"], {}, {"pytorch_model.bin", "tf_model.h5"}),
        (
            [*CONFIGS, *BINS, BIN_INDEX, "other.bin", "flax_model.msgpack"],
            {BIN_INDEX: BINS},
            {"other.bin", "flax_model.msgpack"},
        ),
        ([*CONFIGS, "pytorch_model.bin", "onnx/model.onnx"], {}, {"onnx/model.onnx"}),
        (["README.md", "m-Q4_K_M.gguf", "mmproj-F16.gguf"], {}, set()),
        (["README.md", "Q4/m-Q4-00001-of-00002.gguf", "Q4/m-Q4-00002-of-00002.gguf"], {}, set()),
        # Weights of a model of several parts stand in folders.
        (["model_index.json", "unet/model.safetensors", "vae/model.bin"], {}, set()),
        # Nothing but configurations, and pictures that no program reads.
        ([*CONFIGS, "figures/a.PNG", "demo.mp4", "voice.wav"], {}, {"figures/a.PNG", "demo.mp4"}),
        (["adapter_config.json", "adapter_model.safetensors", "map.pt"], {}, set()),
    ],
)
def test_one_format_of_the_weights_is_taken_and_all_else(
    listed: list[str], indexes: Indexes, left_out: set[str]
) -> None:
    assert {*listed} - {*chosen(None, listed, indexes)} - {*indexes} == left_out
    assert chosen(None, listed, indexes) == [path for path in listed if path in chosen(None, listed, indexes)]


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (["*.json", "model-*.safetensors"], ["config.json", ST_INDEX, *PARTS, "original/config.json"]),
        (["original/"], ["original/config.json", "original/model.safetensors"]),
        (["original/*.json", "config.json"], ["config.json", "original/config.json"]),
        (["model.safetensors.index.json", "model-0000[12]-*"], [ST_INDEX, *PARTS]),
        (["consolidated.safetensors", "config.json"], ["config.json", "consolidated.safetensors"]),
    ],
)
def test_patterns_take_what_they_match_and_nothing_else(patterns: list[str], taken: list[str]) -> None:
    listed = [
        "config.json",
        "consolidated.safetensors",
        ST_INDEX,
        *PARTS,
        "original/config.json",
        "original/model.safetensors",
    ]
    assert sorted(chosen(patterns, listed, {ST_INDEX: PARTS})) == sorted(taken)


@pytest.mark.parametrize(
    ("patterns", "listed", "indexes", "fault"),
    [
        (
            None,
            ["config.json", ST_INDEX, PARTS[0]],
            {ST_INDEX: PARTS},
            f"{ST_INDEX} names {PARTS[1]}, which is not there; fetch another revision",
        ),
        (
            ["*.json", "model-*"],
            ["config.json", ST_INDEX, PARTS[0]],
            {ST_INDEX: PARTS},
            f"{ST_INDEX} names {PARTS[1]}, which is not there; fetch another revision",
        ),
        (
            ["*.json", PARTS[0]],
            ["config.json", ST_INDEX, *PARTS],
            {ST_INDEX: PARTS},
            f"files: leaves out {PARTS[1]}, which {ST_INDEX} names; add it",
        ),
        (["*.jsn"], ["config.json"], {}, r"files: \*.jsn is the pattern of no file; correct it"),
        (None, [ST_INDEX, *PARTS], {ST_INDEX: None}, f"{ST_INDEX} is not an index of weights; choose files without it"),
        (None, [ST_INDEX, *PARTS], {ST_INDEX: []}, f"{ST_INDEX} is not an index of weights; choose files without it"),
        (None, [ST_INDEX, *PARTS], {ST_INDEX: ["../x"]}, f"{ST_INDEX} is not an index of weights"),
        (None, [ST_INDEX, *PARTS], {ST_INDEX: ["/etc/passwd"]}, f"{ST_INDEX} is not an index of weights"),
        (
            None,
            ["a-Q4.gguf", "a-Q8-00001-of-00002.gguf", "a-Q8-00002-of-00002.gguf"],
            {},
            r"has 2 models in GGUF files \(a-Q4.gguf, a-Q8.gguf\); choose one at files, like",
        ),
    ],
)
def test_a_choice_that_is_not_whole_is_refused(
    patterns: list[str] | None, listed: list[str], indexes: Indexes, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        chosen(patterns, listed, indexes)


def test_an_index_in_a_folder_names_files_of_that_folder() -> None:
    listed = ["a/x.safetensors.index.json", "a/x-1.safetensors", "b/config.json"]
    indexes = {"a/x.safetensors.index.json": ["x-1.safetensors"]}
    assert chosen(["a/"], listed, indexes) == listed[:2]
    with pytest.raises(ValueError, match=r"leaves out a/x-1.safetensors"):
        chosen(["a/*.json"], listed, indexes)


def test_the_form_of_an_index() -> None:
    assert [path for path in (ST_INDEX, BIN_INDEX, "a/b.safetensors.index.json") if not INDEX.fullmatch(path)] == []
    assert [path for path in ("index.json", "x.gguf.index.json", "a.index.jsonl") if INDEX.fullmatch(path)] == []
