"""The lock file: what it says, what is refused, and how it is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrack.fleet import RackError, pins
from sparkrack.fleet.pins import Pin

A, B = (f"sha256:{digit * 64}" for digit in "ab")
hashes = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)
books = st.dictionaries(st.text(max_size=20), st.builds(Pin, st.none() | hashes, hashes), max_size=5)


def entry(**keys: str | None) -> str:
    return json.dumps({"images": {"x:1": keys}})


def said(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RackError) as error:
        pins.read(path)
    (line,) = str(error.value).splitlines()
    return line.removeprefix(str(path))


def test_it_lies_beside_the_rack_file() -> None:
    assert pins.lock_path(Path("/a/rack.yaml")) == Path("/a/rack.lock.json")
    assert pins.lock_path(Path("/a/b.two.yml")) == Path("/a/b.two.lock.json")


def test_none_is_empty(tmp_path: Path) -> None:
    assert pins.read(tmp_path / "rack.lock.json") == {}


def test_its_form(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    pins.write(path, {"x:2": Pin(None, B), "scitrera/x:0.5.12": Pin(A, B)})
    assert json.loads(path.read_text()) == {
        "images": {"scitrera/x:0.5.12": {"digest": A, "id": B}, "x:2": {"digest": None, "id": B}}
    }
    assert path.read_text().endswith("}\n")


@settings(max_examples=15, deadline=None)
@given(book=books)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, book: dict[str, Pin]) -> None:
    path = tmp_path_factory.mktemp("lock") / "rack.lock.json"
    pins.write(path, book)
    assert pins.read(path) == book
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_reads_it(tmp_path: Path, umask: int, mode: int) -> None:
    path, before = tmp_path / "rack.lock.json", os.umask(umask)
    try:
        pins.write(path, {})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "rack.lock.json"
    link.symlink_to("kept/lock.json")
    pins.write(link, {"x:1": Pin(A, B)})
    assert link.is_symlink()
    assert pins.read(tmp_path / "kept/lock.json") == {"x:1": Pin(A, B)}


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rack.lock.json"
    pins.write(path, {"x:1": Pin(A, A)})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        pins.write(path, {"x:1": Pin(B, B)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_is_no_longer_declared_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    pins.write(path, {"old:1": Pin(A, A), "x:1": Pin(A, A), "y:1": Pin(B, B)})
    pins.record(path, ["x:1", "y:1", "z:1"], {"x:1": Pin(A, B), "other:1": Pin(A, A)})
    assert pins.read(path) == {"x:1": Pin(A, B), "y:1": Pin(B, B)}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: is not JSON: Expecting value; "),
        ('{\n"images": {},\n}', ":3: is not JSON: "),
        ("[]", ": is no lock file of sparkrack"),
        ("{}", ": is no lock file of sparkrack"),
        ('{"images": []}', ": is no lock file of sparkrack"),
        ('{"images": {}, "more": 1}', ": is no lock file of sparkrack"),
        ('{"images": {"x:1": null}}', ": images.x:1: is not a mapping of digest and id"),
        (entry(id=A), ": images.x:1: is not a mapping"),
        (entry(id=None, digest=None), ": images.x:1.id: None is not sha256:"),
        (entry(id=A, digest="latest"), ": images.x:1.digest: latest is not sha256:"),
        (entry(id=A + "0", digest=None), ": images.x:1.id: sha256:aaa"),
        ('{"images": {"x\\n": {"id": 1, "digest": null}}}', ": images.x\\n.id: 1 is not"),
        ('{"images": {"x:1": 1, "x:1": 2}}', ": cannot be understood: x:1 is there twice; "),
        ("[" * 100_000, ": cannot be understood: "),
        (b"\xff", ": is not UTF-8 text; "),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, what: str) -> None:
    line = said(tmp_path / "rack.lock.json", text)
    assert line.startswith(what)
    assert "a run resolves each image anew" in line


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "rack.lock.json"
    folder.mkdir()
    with pytest.raises(RackError, match="cannot be read: Is a directory"):
        pins.read(folder)
