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


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: is not JSON"),
        ("{}", ": is not a lock file of sparkrack"),
        ('{"models": []}', ": is not a lock file of sparkrack"),
        ('{"models": {"m": 1}}', ": models.m: is not a mapping of source"),
        (entry(more=1), ": models.m: is not a mapping of source"),
        (entry(source="a/b"), ": models.m: has not both source and revision"),
        (entry(source=1, revision=COMMIT), ": models.m: has not both source and revision"),
        (entry(source="a/b", revision="main"), ": models.m.revision: main is not a commit"),
        (entry(files={}), ": models.m.files: it names no file"),
        (entry(files=[]), ": models.m.files: is not a mapping of paths"),
        (entry(files={"x": {"size": 1}}), ": models.m.files: is not a mapping of paths"),
        (entry(files={"x": {"size": -1, "sha256": A}}), ": models.m.files: x: -1 is not a size"),
        (entry(files={"x": {"size": True, "sha256": A}}), ": models.m.files: x: True is not a size"),
        (entry(files={"x": {"size": 1.5, "sha256": A}}), ": models.m.files: x: 1.5 is not a size"),
        (entry(files={"x": {"size": 1, "sha256": A[1:]}}), ": models.m.files: x: aaa"),
        (
            entry(files={p: {"size": 1, "sha256": A} for p in ("a", "a/b")}),
            ": models.m.files: a is a file and a folder",
        ),
        (entry(configurations={"config.json": {}}), ": models.m.configurations: is not a mapping"),
        (entry(configurations=None), ": models.m.configurations: is not a mapping"),
    ],
)
def test_what_is_refused(path: Path, text: str, what: str) -> None:
    assert reported(path, text).startswith(what)


def test_images_are_read_beside_a_broken_model_and_keep_it(path: Path) -> None:
    path.write_text('{"images": {}, "models": {"m": 1}}')
    image_lock.write(path, {"x:1": PIN})
    assert json.loads(path.read_text())["models"] == {"m": 1}
