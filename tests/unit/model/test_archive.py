"""Archives that are given away."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.util.archive import write_archive

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_archive_has_its_files_below_its_name_for_its_owner_only(tmp_path: Path) -> None:
    files = {"manifest.json": b"{}", "nodes/node1.json": b"x" * 3000}
    path = tmp_path / "rack.tar.gz"
    write_archive(path, files, MADE)
    with tarfile.open(path) as archive:
        found = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    assert found == {f"rack/{name}": content for name, content in files.items()}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "rack.tar.gz"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        write_archive(path, {"a": b""}, MADE)
    assert path.read_bytes() == b"mine"
