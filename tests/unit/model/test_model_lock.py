"""The models of the lock file: what is written and read, what is refused, and the images beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.model import ConfigError, image_lock, model_lock
from core.model.image_lock import Pin
from core.model.model_lock import ModelFile, ModelRecord

A, B = ("a" * 64, "b" * 64)
COMMIT = "c" * 40
HUB = ModelRecord(
    "Qwen/Qwen3",
    COMMIT,
    (ModelFile("config.json", 2, A), ModelFile("sub/x-1.bin", 7, B)),
    {"config.json": "{}"},
    "main",
)
LOCAL = ModelRecord(None, None, (ModelFile("config.json", 2, A),), {})
PIN = Pin(f"sha256:{A}", f"sha256:{B}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rack.lock.json"


def reported(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        model_lock.read(path)
    (line,) = str(error.value).splitlines()
    return line.removeprefix(str(path))


def entry(**changes: Any) -> str:
    whole: dict[str, Any] = {"source": None, "revision": None, "files": {"x": {"size": 1, "sha256": A}}}
    return json.dumps({"models": {"m": {**whole, "configurations": {}, **changes}}})


def test_what_is_written_is_read(path: Path) -> None:
    model_lock.write(path, {"qwen": HUB, "local": LOCAL})
    assert model_lock.read(path) == {"qwen": HUB, "local": LOCAL}
    assert image_lock.read(path) == {}


def test_none_is_empty(path: Path) -> None:
    assert model_lock.read(path) == {}


def test_a_file_of_before_has_no_models(path: Path) -> None:
    path.write_text(json.dumps({"images": {"x:1": {"digest": None, "id": PIN.id}}}))
    assert model_lock.read(path) == {}


def test_each_section_keeps_the_other(path: Path) -> None:
    image_lock.write(path, {"x:1": PIN})
    model_lock.record(path, ["qwen"], {"qwen": HUB})
    image_lock.record(path, ["x:1", "y:1"], {"y:1": PIN})
    assert image_lock.read(path) == {"x:1": PIN, "y:1": PIN}
    assert model_lock.read(path) == {"qwen": HUB}


def test_what_is_no_longer_declared_is_dropped(path: Path) -> None:
    model_lock.write(path, {"old": HUB, "qwen": HUB})
    model_lock.record(path, ["qwen", "new"], {"new": LOCAL, "other": LOCAL})
    assert model_lock.read(path) == {"qwen": HUB, "new": LOCAL}


def test_one_without_the_requested_revision(path: Path) -> None:
    path.write_text(entry(source="a/b", revision=COMMIT))
    assert model_lock.read(path)["m"].requested is None


@pytest.mark.parametrize(
    "called",
    [
        *("", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "a/./b", "x\ny", "x\0", "x\x1b[2J", "a\\b"),
        *(".sparkrack/record.json", "x" * 201, "a/" * 600 + "x", "\u2028", "\u0085", "\ud800"),
    ],
)
def test_a_path_that_could_leave_the_folder(path: Path, called: str) -> None:
    line = reported(path, entry(files={called: {"size": 1, "sha256": A}}))
    assert line.startswith(": models.m.files: ")
    assert "take the file from version control" in line


@pytest.mark.parametrize(
    "called", ["config.json", "a/b/c.bin", "..x", "a b", "$(touch x)", "-x", "模型.bin", ".gitattributes"]
)
def test_a_path_that_is_accepted(called: str) -> None:
    assert model_lock.path_fault(called) is None


def test_a_path_has_at_most_1024_bytes_and_each_part_200() -> None:
    longest = "/".join(["x" * 200] * 5 + ["y" * 19])
    assert len(longest) == 1024
    assert model_lock.path_fault(longest) is None
    assert model_lock.path_fault(f"{longest}y") == "is too long"
    assert model_lock.path_fault(f"{'ü' * 100}y") == "is too long"


NOT_A_LOCK_FILE = "is not a lock file of sparkrack: it holds the mappings images, models and units"
NOT_A_MODEL = "models.m: is not a mapping of source, revision, files and configurations"
NOT_BOTH = "models.m: has not both source and revision as text"
NOT_FILES = "models.m.files: is not a mapping of paths to size and sha256"
NOT_TEXTS = "models.m.configurations: is not a mapping of names to text"
RIGHT = "take the file from version control, or remove it: a run resolves each image and each model again"
WHOLE = {"size": 1, "sha256": A}
LARGEST = 1 << 50


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: is not JSON: Expecting value"),
        ("{}", f": {NOT_A_LOCK_FILE}"),
        ('{"models": []}', f": {NOT_A_LOCK_FILE}"),
        ('{"models": {"m": 1}}', f": {NOT_A_MODEL}"),
        ('{"models": {"' + "m" * 61 + '": 1}}', f": models.{'m' * 57}...{NOT_A_MODEL[8:]}"),
        (entry(more=1), f": {NOT_A_MODEL}"),
        (json.dumps({"models": {"m": {"source": None, "revision": None, "files": {"x": WHOLE}}}}), f": {NOT_A_MODEL}"),
        (entry(source="a/b"), f": {NOT_BOTH}"),
        (entry(revision=COMMIT), f": {NOT_BOTH}"),
        (entry(source=1, revision=COMMIT), f": {NOT_BOTH}"),
        (entry(requested=1), f": {NOT_BOTH}"),
        (entry(source="a/b", revision="main"), ": models.m.revision: main is not a commit of 40 digits"),
        (entry(source="a/b", revision=1), ": models.m.revision: 1 is not a commit of 40 digits"),
        (
            entry(source="a/b", revision=f"{COMMIT}0"),
            f": models.m.revision: {COMMIT}0 is not a commit of 40 digits",
        ),
        (entry(files={}), ": models.m.files: it names no file"),
        (entry(files=[]), f": {NOT_FILES}"),
        (entry(files={"x": 1}), f": {NOT_FILES}"),
        (entry(files={"x": {"size": 1}}), f": {NOT_FILES}"),
        (entry(files={"x": {**WHOLE, "more": 1}}), f": {NOT_FILES}"),
        (entry(files={"x": WHOLE, "y": {"size": 1}}), f": {NOT_FILES}"),
        (entry(files={"x": {**WHOLE, "size": -1}}), ": models.m.files: x: -1 is not a size in bytes"),
        (entry(files={"x": {**WHOLE, "size": True}}), ": models.m.files: x: True is not a size in bytes"),
        (entry(files={"x": {**WHOLE, "size": 1.5}}), ": models.m.files: x: 1.5 is not a size in bytes"),
        (
            entry(files={"x": {**WHOLE, "size": LARGEST + 1}}),
            f": models.m.files: x: {LARGEST + 1} is not a size in bytes",
        ),
        (
            entry(files={"x": {**WHOLE, "sha256": A[1:]}}),
            f": models.m.files: x: {'a' * 57}... is not a sha256 of 64 digits",
        ),
        (entry(files={"x": {**WHOLE, "sha256": 1}}), ": models.m.files: x: 1 is not a sha256 of 64 digits"),
        (entry(files={"a": WHOLE, "a/b": WHOLE}), ": models.m.files: a is a file and a folder"),
        (entry(files={"c/a/b": WHOLE, "c/a": WHOLE}), ": models.m.files: c/a is a file and a folder"),
        (entry(files={"": WHOLE}), ': models.m.files: "" is not a path'),
        (entry(files={"a//b": WHOLE}), ": models.m.files: a//b is not a plain path within the folder of the model"),
        (entry(files={"/a": WHOLE}), ": models.m.files: /a is not a plain path within the folder of the model"),
        (
            entry(files={"a\\b": WHOLE}),
            ": models.m.files: a\\b has a backslash or a character that does not print",
        ),
        (
            entry(files={".sparkrack/x": WHOLE}),
            ": models.m.files: .sparkrack/x is in .sparkrack, which belongs to this program",
        ),
        (entry(configurations={"config.json": {}}), f": {NOT_TEXTS}"),
        (entry(configurations=None), f": {NOT_TEXTS}"),
    ],
)
def test_what_is_refused(path: Path, text: str, what: str) -> None:
    assert reported(path, text) == f"{what}; {RIGHT}"


@pytest.mark.parametrize("size", [0, LARGEST])
def test_a_size_of_no_bytes_and_the_largest_are_read(path: Path, size: int) -> None:
    path.write_text(entry(files={"x": {**WHOLE, "size": size}, ".sparkrackx/y": {**WHOLE, "size": 2}}))
    assert model_lock.read(path)["m"].size == size + 2


def test_a_file_that_is_listed_twice_is_refused() -> None:
    twice = [ModelFile("x", 1, A), ModelFile("y", 1, A), ModelFile("x", 1, A)]
    assert model_lock.files_fault(twice) == "x is there twice"
    assert model_lock.files_fault(twice[:2]) is None
    assert model_lock.path_fault(1) == "is not a path"


def test_the_file_has_its_keys_and_names_in_order(path: Path) -> None:
    model_lock.write(path, {"qwen": HUB, "local": LOCAL})
    models = json.loads(path.read_text())["models"]
    assert list(models) == ["local", "qwen"]
    assert models["qwen"] == {
        "source": "Qwen/Qwen3",
        "requested": "main",
        "revision": COMMIT,
        "files": {"config.json": {"size": 2, "sha256": A}, "sub/x-1.bin": {"size": 7, "sha256": B}},
        "configurations": {"config.json": "{}"},
    }


def test_images_are_read_beside_a_broken_model_and_keep_it(path: Path) -> None:
    path.write_text('{"images": {}, "models": {"m": 1}}')
    image_lock.write(path, {"x:1": PIN})
    assert json.loads(path.read_text())["models"] == {"m": 1}
