"""Files that are named by the user: only regular ones are read, and no other kind holds a command up."""

from __future__ import annotations

import ast
import os
import socket
from pathlib import Path

import pytest

from core.util import regular_file

TOP = Path(__file__).parents[3]
OWN = {
    "core/advisories/advisories.py",  # a table of the program
    "core/claims/claims.py",  # a file of the program
    "serving/engines/option_table.py",  # a table of the program
    "serving/engines/dump_options.py",  # runs in an image, and reads the parser there
    "core/util/regular_file.py",
    "core/ssh/own_node.py",  # the IDs of this machine and its boot
    "sparkrack/autopsy/drill.py",  # the ID of this machine's boot
    "core/ops/run_lock.py",  # the kernel's /proc
    "core/util/resources.py",  # files of the program
    "core/verify/plugin.py",  # answers that sessions of one verification share
    "core/verify/fabric_use.py",  # figures that sessions of one verification share
    "core/verify/report_html.py",  # documents of the program
    "sparkrack/rebuild/process_lock.py",  # the kernel's /proc
    "sparkrack/watch/report_html.py",  # documents of the program
}
"""Modules that read what no user names. Programs of the nodes, in the folders `files` of roles, do neither."""


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"k\xc3\xb6ln")
    (tmp_path / "link").symlink_to(path)
    assert regular_file.read_bytes(path) == regular_file.read_bytes(tmp_path / "link") == b"k\xc3\xb6ln"
    assert regular_file.read_bytes(path, 1) == b"k"
    assert regular_file.read_text(path) == "köln"
    with pytest.raises(FileNotFoundError):
        regular_file.read_bytes(tmp_path / "missing")
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        regular_file.read_text(path)


def opened() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device", "folder"])
def test_what_is_not_a_file(tmp_path: Path, kind: str) -> None:
    path, before = tmp_path / "it", opened()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    what = "Is a directory" if kind == "folder" else f"is a {kind}, not a regular file"
    with pytest.raises(OSError, match=what) as caught:
        regular_file.read_bytes(path)
    assert (caught.value.strerror, caught.value.filename) == (what, str(path))
    assert opened() == before, "a file is left open"


def test_every_file_of_the_user_is_read_so() -> None:
    found = []
    for package in ("core", "serving", "roles", "switch", "sparkrack"):
        for path in (TOP / package).rglob("*.py"):
            name = str(path.relative_to(TOP))
            if path.parent.name == "files":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in ("read_text", "read_bytes") and name not in OWN:
                    owner = node.value.id if isinstance(node.value, ast.Name) else ""
                    found += [] if owner == "regular_file" else [f"{name}:{node.lineno}"]
    assert not found
