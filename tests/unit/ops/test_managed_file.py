"""Managed files: what is written is read back as in sync, by hash and by content; anything else differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from core.ops import remote_files
from core.util.managed_file import (
    FileState,
    ManagedFile,
    changes,
    differing,
    header,
    parse_hashes,
    probe_hashes,
    probe_permissions,
    states,
    validate_shell,
)
from tests.unit.ops.shells import run, stand_in

PLAIN = ManagedFile("/etc/sparkrack/a", b"one\n")
SCRIPT = ManagedFile("/etc/sparkrack/b", b"#!/bin/sh\ntrue\n", "755", validate_shell())
FILES = (PLAIN, SCRIPT)
PATHS = [file.path for file in FILES]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node that has both files; `stat` shows root as their owner."""
    stand_in(tmp_path, "chown")
    stand_in(tmp_path, "stat", "/usr/bin/stat \"$@\" | sed -E 's/ [^ ]+:[^ ]+/ root:root/'")
    (tmp_path / "etc/sparkrack").mkdir(parents=True)
    for file in FILES:
        done = run(remote_files.put_managed(file), tmp_path)
        assert done.returncode == 0, done.stderr
    return tmp_path


def by_hash(node: Path) -> Mapping[str, FileState]:
    done = run(probe_hashes(PATHS), node)
    assert done.returncode == 0, done.stderr
    return parse_hashes("files", done.stdout.replace(str(node), ""))


def by_content(node: Path) -> Mapping[str, FileState]:
    done = run(probe_permissions(PATHS), node)
    assert done.returncode == 0, done.stderr
    contents = {path: on.read_bytes() if (on := Path(f"{node}{path}")).exists() else None for path in PATHS}
    return states(done.stdout.replace(str(node), ""), contents)


BOTH = pytest.mark.parametrize("read", [by_hash, by_content])
Read = Callable[[Path], Mapping[str, FileState]]


@BOTH
def test_what_is_written_is_in_sync(node: Path, read: Read) -> None:
    assert differing(FILES, read(node)) == []


@BOTH
def test_another_content_differs(node: Path, read: Read) -> None:
    Path(f"{node}{PLAIN.path}").write_text("two\n")
    assert differing(FILES, read(node)) == [PLAIN]
    assert [event.message for event in changes([PLAIN], read(node))] == [f"rewrite {PLAIN.path}"]


@BOTH
def test_another_mode_differs(node: Path, read: Read) -> None:
    Path(f"{node}{SCRIPT.path}").chmod(0o775)
    assert differing(FILES, read(node)) == [SCRIPT]


@BOTH
def test_another_owner_differs(node: Path, read: Read) -> None:
    stand_in(node, "stat", "/usr/bin/stat \"$@\" | sed -E 's/ [^ ]+:[^ ]+/ ops:root/'")
    assert differing(FILES, read(node)) == list(FILES)


@BOTH
def test_a_missing_file_differs(node: Path, read: Read) -> None:
    Path(f"{node}{PLAIN.path}").unlink()
    assert differing(FILES, read(node)) == [PLAIN]
    assert [event.message for event in changes([PLAIN], read(node))] == [f"write {PLAIN.path}"]
    Path(f"{node}{SCRIPT.path}").unlink()
    assert read(node) == {}


def test_an_invalid_file_does_not_replace_the_old_one(node: Path) -> None:
    assert (
        run(remote_files.put_managed(ManagedFile(SCRIPT.path, b"if\n", "755", SCRIPT.validate)), node).returncode != 0
    )
    assert differing(FILES, by_hash(node)) == []


def test_a_garbled_answer_is_never_in_sync() -> None:
    with pytest.raises(ValueError, match=r"^files: unexpected probe output '644 root:root x /etc/sparkrack/a'$"):
        parse_hashes("files", f"644 root:root x {PLAIN.path}\n")
    for answer in ("", "garbage", PLAIN.path, f"644 root:root {PLAIN.path}x"):
        assert differing([PLAIN], states(answer, {PLAIN.path: PLAIN.content})) == [PLAIN]


def test_the_header_is_a_comment() -> None:
    assert header("two") == "# Written by sparkrack for the rack two; a change here is overwritten."
    assert header("two", "//").startswith("// Written ")
