"""The lock file: what it says, what is refused, and how it is written."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model import ConfigError, image_lock, lock_file
from core.model.image_lock import ImageNccl, Pin

A, B = (f"sha256:{digit * 64}" for digit in "ab")
hashes = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)
conf = st.none() | st.lists(st.text(min_size=1, max_size=20)).map(tuple)
looked = st.builds(ImageNccl, st.none() | st.just("2.28.9"), st.none() | st.sampled_from(["wheel", "system"]), conf)
books = st.dictionaries(
    st.text(max_size=20), st.builds(Pin, st.none() | hashes, hashes, st.none() | looked), max_size=5
)


def entry(**keys: str | None) -> str:
    return json.dumps({"images": {"x:1": keys}})


def reported(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as error:
        image_lock.read(path)
    (line,) = str(error.value).splitlines()
    return line.removeprefix(str(path))


def test_it_lies_beside_the_rack_file() -> None:
    assert lock_file.lock_path(Path("/a/rack.yaml")) == Path("/a/rack.lock.json")
    assert lock_file.lock_path(Path("/a/b.two.yml")) == Path("/a/b.two.lock.json")


def test_none_is_empty(tmp_path: Path) -> None:
    assert image_lock.read(tmp_path / "rack.lock.json") == {}


def test_its_form(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    image_lock.write(path, {"x:2": Pin(None, B), "scitrera/x:0.5.12": Pin(A, B)})
    assert json.loads(path.read_text()) == {
        "images": {"scitrera/x:0.5.12": {"digest": A, "id": B}, "x:2": {"digest": None, "id": B}}
    }
    assert path.read_text().endswith("}\n")


def test_what_an_image_has_of_nccl_is_in_it_once_it_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    image_lock.write(path, {"x:1": Pin(A, B, ImageNccl("2.28.9", "wheel", ("NCCL_ALGO=Ring",)))})
    assert json.loads(path.read_text())["images"]["x:1"] == {
        "digest": A,
        "id": B,
        "nccl": {"version": "2.28.9", "build": "wheel", "conf": ["NCCL_ALGO=Ring"]},
    }
    image_lock.write(path, {"x:1": Pin(A, B, ImageNccl(None, None, None))})
    assert image_lock.read(path)["x:1"].nccl == ImageNccl(None, None, None), "unknown is not the same as not asked"


def test_what_is_known_of_an_image_is_kept_while_it_is_that_image(tmp_path: Path) -> None:
    path, known = tmp_path / "rack.lock.json", ImageNccl("2.30.7", "system", ())
    image_lock.write(path, {"x:1": Pin(A, B, known)})
    image_lock.record(path, ["x:1"], {"x:1": Pin(A, B)})
    assert image_lock.read(path) == {"x:1": Pin(A, B, known)}
    image_lock.record(path, ["x:1"], {"x:1": Pin(A, A)})
    assert image_lock.read(path) == {"x:1": Pin(A, A)}


@pytest.mark.parametrize(
    "nccl",
    [
        None,
        "2.28.9",
        {"version": "2.28.9", "build": "wheel"},
        {"version": 2, "build": "wheel", "conf": []},
        {"version": "new", "build": "wheel", "conf": []},
        {"version": "2.28.9", "build": "pip", "conf": []},
        {"version": "2.28.9", "build": "wheel", "conf": "NCCL_ALGO=Ring"},
        {"version": "2.28.9", "build": "wheel", "conf": [1]},
    ],
)
def test_anything_else_about_nccl_is_refused(tmp_path: Path, nccl: Any) -> None:
    text = json.dumps({"images": {"x:1": {"digest": A, "id": B, "nccl": nccl}}})
    assert "images.x:1.nccl: is not a mapping of version, build and conf" in reported(tmp_path / "l.json", text)


@settings(max_examples=15, deadline=None)
@given(book=books)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, book: dict[str, Pin]) -> None:
    path = tmp_path_factory.mktemp("lock") / "rack.lock.json"
    image_lock.write(path, book)
    assert image_lock.read(path) == book
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_reads_it(tmp_path: Path, umask: int, mode: int) -> None:
    path, before = tmp_path / "rack.lock.json", os.umask(umask)
    try:
        image_lock.write(path, {})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "rack.lock.json"
    link.symlink_to("kept/lock.json")
    image_lock.write(link, {"x:1": Pin(A, B)})
    assert link.is_symlink()
    assert image_lock.read(tmp_path / "kept/lock.json") == {"x:1": Pin(A, B)}


def test_nothing_is_written_through_a_link_that_waits_there(tmp_path: Path) -> None:
    """Others who write to the folder may foresee the ID of a process."""
    path, victim = tmp_path / "rack.lock.json", tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / f".rack.lock.json.{os.getpid()}").symlink_to(victim)
    image_lock.write(path, {"x:1": Pin(A, B)})
    assert victim.read_text() == "untouched"
    assert image_lock.read(path) == {"x:1": Pin(A, B)}


def recording(path: Path, name: str, both: Barrier) -> None:
    read = image_lock.read

    def slowly(path: Path) -> dict[str, Pin]:
        found = read(path)
        with suppress(BrokenBarrierError):
            both.wait(2)  # until the other one has read, too; which only one does that is not kept out
        return found

    image_lock.read = slowly
    image_lock.record(path, ["a:1", "b:1"], {name: Pin(A, B)})


def test_two_processes_that_record_lose_nothing(tmp_path: Path) -> None:
    path, context = tmp_path / "rack.lock.json", get_context("fork")
    both = context.Barrier(2)
    processes = [context.Process(target=recording, args=(path, name, both)) for name in ("a:1", "b:1")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]
    assert image_lock.read(path) == {"a:1": Pin(A, B), "b:1": Pin(A, B)}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_one_that_is_held_for_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "_PATIENCE", 0.1)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(OSError, match=r"another process has been writing the lock file for 0\.1 s"):
            image_lock.record(tmp_path / "rack.lock.json", ["x:1"], {"x:1": Pin(A, B)})
    finally:
        os.close(folder)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    image_lock.record(tmp_path / "rack.lock.json", ["x:1"], {"x:1": Pin(A, B)})
    assert image_lock.read(tmp_path / "rack.lock.json") == {"x:1": Pin(A, B)}


def test_a_fifo_is_not_a_lock_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rack.lock.json")
    with pytest.raises(ConfigError) as error:
        image_lock.read(tmp_path / "rack.lock.json")
    assert str(error.value) == (
        f"{tmp_path / 'rack.lock.json'}: cannot be read: is a FIFO, not a regular file; {RIGHT}"
    )


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rack.lock.json"
    image_lock.write(path, {"x:1": Pin(A, A)})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        image_lock.write(path, {"x:1": Pin(B, B)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_is_no_longer_declared_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    image_lock.write(path, {"old:1": Pin(A, A), "x:1": Pin(A, A), "y:1": Pin(B, B)})
    image_lock.record(path, ["x:1", "y:1", "z:1"], {"x:1": Pin(A, B), "other:1": Pin(A, A)})
    assert image_lock.read(path) == {"x:1": Pin(A, B), "y:1": Pin(B, B)}


NOT_A_LOCK_FILE = ": is not a lock file of sparkrack: it holds the mappings images, models and units"
NOT_AN_IMAGE = ": images.x:1: is not a mapping of digest and id"
RIGHT = "take the file from version control, or remove it: a run resolves each image and each model again"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: is not JSON: Expecting value"),
        ('{\n"images": {}\n"models"', ":3: is not JSON: Expecting ',' delimiter"),
        ("[]", NOT_A_LOCK_FILE),
        ("{}", NOT_A_LOCK_FILE),
        ('{"images": []}', NOT_A_LOCK_FILE),
        ('{"images": {}, "models": []}', NOT_A_LOCK_FILE),
        ('{"images": {}, "more": 1}', NOT_A_LOCK_FILE),
        ('{"images": {}, "more": {}}', NOT_A_LOCK_FILE),
        ('{"images": {"x:1": null}}', NOT_AN_IMAGE),
        (entry(id=A), NOT_AN_IMAGE),
        (entry(id=A, digest=A, more=A), NOT_AN_IMAGE),
        (entry(id=None, digest=None), ": images.x:1.id: None is not sha256: and 64 digits"),
        (entry(id=A, digest="latest"), ": images.x:1.digest: latest is not sha256: and 64 digits"),
        (entry(id=A + "0", digest=None), f": images.x:1.id: {A[:57]}... is not sha256: and 64 digits"),
        (
            json.dumps({"images": {"x" * 61: {"id": A, "digest": "y" * 61}}}),
            f": images.{'x' * 57}....digest: {'y' * 57}... is not sha256: and 64 digits",
        ),
        ('{"images": {"x\\n": {"id": 1, "digest": null}}}', ": images.x\\n.id: 1 is not sha256: and 64 digits"),
        ('{"images": {"x:1": 1, "x:1": 2}}', ": cannot be understood: x:1 is there twice"),
        (b"\xff", ": is not UTF-8 text"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, what: str) -> None:
    assert reported(tmp_path / "rack.lock.json", text) == f"{what}; {RIGHT}"


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    line = reported(tmp_path / "rack.lock.json", "[" * 100_000)
    assert line.startswith(": cannot be understood: ")
    assert line.endswith(f"; {RIGHT}")


@pytest.mark.parametrize("sections", [("images", "models", "units"), ("models",), ("units",)])
def test_a_file_may_have_any_of_the_sections(tmp_path: Path, sections: tuple[str, ...]) -> None:
    path = tmp_path / "rack.lock.json"
    path.write_text(json.dumps({name: {} for name in sections}))
    assert image_lock.read(path) == {}


def test_the_file_is_written_byte_for_byte_so(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    lock_file.write_section(path, "units", {"two": {"a": 1}, "one": {}})
    lock_file.write_section(path, "models", {})
    assert path.read_text() == (
        '{\n  "images": {},\n  "units": {\n    "one": {},\n    "two": {\n      "a": 1\n    }\n  }\n}\n'
    )


def test_the_ids_of_a_broken_file_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "rack.lock.json"
    image_lock.write(path, {"x:1": Pin(None, A)})
    assert image_lock.known_ids(path) == {"x:1": A}
    path.write_text("broken")
    assert image_lock.known_ids(path) == {}


def test_another_error_of_the_lock_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        image_lock.record(tmp_path / "rack.lock.json", ["x:1"], {"x:1": Pin(A, B)})
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "rack.lock.json"
    folder.mkdir()
    with pytest.raises(ConfigError) as error:
        image_lock.read(folder)
    assert str(error.value) == f"{folder}: cannot be read: Is a directory; make it readable"
