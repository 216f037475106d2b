"""Archives that strangers made: refused in one line, without more memory than the limit allows."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.util.archive import read_archive, write_archive

MOST = 1 << 20


def packed(path: Path, fill: Callable[[tarfile.TarFile], None]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        fill(archive)
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for key, value in fields.items():
        setattr(entry, key, value)
    archive.addfile(entry, io.BytesIO(content))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    files = {"manifest.json": b"{}", "nodes/node1.json": b"x" * 3000}
    path = tmp_path / "rack.tar.gz"
    write_archive(path, files, datetime(2026, 1, 1, tzinfo=UTC))
    assert read_archive(path, MOST) == files
    assert path.stat().st_mode & 0o777 == 0o600


def many_headers(archive: tarfile.TarFile) -> None:
    for number in range(MOST // 512):
        add(archive, f"rack/{number}")


def twice(archive: tarfile.TarFile) -> None:
    add(archive, "rack/a")
    add(archive, "rack/a")


HOSTILE: dict[str, tuple[Callable[[tarfile.TarFile], None], str]] = {
    "a long file": (lambda archive: add(archive, "rack/a", bytes(2 * MOST)), f"more than {MOST} bytes"),
    "a long header": (lambda archive: add(archive, f"rack/{'a' * 2 * MOST}"), f"more than {MOST} bytes"),
    "a long comment": (
        lambda archive: add(archive, "rack/a", pax_headers={"comment": "a" * 2 * MOST}),
        f"more than {MOST} bytes",
    ),
    "many empty files": (many_headers, f"more than {MOST} bytes"),
    "a link": (lambda archive: add(archive, "rack/a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is not one file"),
    "a hard link": (lambda archive: add(archive, "rack/a", type=tarfile.LNKTYPE, linkname="x"), "is not one file"),
    "a device": (lambda archive: add(archive, "rack/a", type=tarfile.CHRTYPE), "is not one file"),
    "no folder": (lambda archive: add(archive, "manifest.json", b"{}"), "is not one file"),
    "a file twice": (twice, "is not one file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused(case: str, tmp_path: Path) -> None:
    fill, text = HOSTILE[case]
    with pytest.raises(ValueError, match=text):
        read_archive(packed(tmp_path / "rack.tar.gz", fill), MOST)


def test_zeros_behind_the_end_are_counted(tmp_path: Path) -> None:
    path = packed(tmp_path / "rack.tar.gz", lambda archive: add(archive, "rack/a"))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(2 * MOST)))
    with pytest.raises(ValueError, match=f"more than {MOST} bytes"):
        read_archive(path, MOST)


@pytest.mark.parametrize("damage", ["cut", "changed", "no gzip", "empty"])
def test_a_damaged_archive_is_refused(damage: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "rack.tar.gz", lambda archive: add(archive, "rack/a", b"content" * 500))
    content = path.read_bytes()
    checksum = len(content) - 8
    path.write_bytes(
        {
            "cut": content[:-20],
            "changed": content[:checksum] + bytes([content[checksum] ^ 1]) + content[checksum + 1 :],
            "no gzip": b"PK\x03\x04" + content,
            "empty": b"",
        }[damage]
    )
    with pytest.raises(ValueError, match="is not a whole tar"):
        read_archive(path, MOST)
