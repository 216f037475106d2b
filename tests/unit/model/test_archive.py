"""Archives that are given away."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.util import archive
from core.util.archive import write_archive

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_archive_has_its_files_below_its_name_for_its_owner_only(tmp_path: Path) -> None:
    files = {"manifest.json": b"{}", "nodes/node1.json": b"x" * 3000}
    path = tmp_path / "rack.tar.gz"
    write_archive(path, files, MADE)
    with tarfile.open(path) as packed:
        found = {entry.name: packed.extractfile(entry).read() for entry in packed}  # type: ignore[union-attr]
    assert found == {f"rack/{name}": content for name, content in files.items()}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "rack.tar.gz"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        write_archive(path, {"a": b""}, MADE)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "a/../../b", "..", "a//b", "", "a/", "./a", "a\\nb", "a\x1b[2J", "C:\\x", "\u00e9"]
)
def test_a_name_that_would_leave_the_folder_of_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    """Or that a terminal or another system reads in its own way."""
    with pytest.raises(ValueError, match="is not a name for a file of an archive"):
        write_archive(tmp_path / "rack.tar.gz", {"a": b"", name: b""}, MADE)
    assert not list(tmp_path.iterdir())


def test_an_archive_is_never_too_large_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value, text in (
        ("MAX_FILES", 1, "2 files are more than the 1 of an archive"),
        ("MAX_BYTES", 11, "12 bytes are more than the 11 of an archive"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archive, limit, value)
            with pytest.raises(ValueError, match=text):
                write_archive(tmp_path / "rack.tar.gz", {"a": b"x" * 6, "b": b"x" * 6}, MADE)
    assert not list(tmp_path.iterdir())
    write_archive(tmp_path / "rack.tar.gz", {"a": b"x" * 6, "b": b"x" * 6}, MADE)
