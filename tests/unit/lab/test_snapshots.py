"""What a snapshot keeps of a lab's folder, and which one a lab may be started from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.image.build import Base
from lab.image.kernel import Kernel
from lab.paths import LabPaths
from lab.snapshots import LabSnapshot, names

KEPT = ("asked.yaml", "known_hosts", "nodes/spark1/disk.cow", "nodes/spark1/shared/seed/hostname", "images/store/blob")
GONE = (
    *("nodes/spark1/console.log", "nodes/spark1/sparkrack-0a-spark1/pid", "switches/crs812/log.ndjson"),
    *("switches/crs812/output.log", "packages/Packages", "images/registry.yaml", "state/runs/one.ndjson"),
)


@pytest.fixture(autouse=True)
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKRACK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path / "cache/lab/image-1", Kernel(tmp_path / "cache/lab/kernel-1"))


@pytest.fixture
def paths(tmp_path: Path) -> LabPaths:
    made = LabPaths(tmp_path / "one")
    for name in (*KEPT, *GONE):
        (made.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / name).write_text(name)
    made.rack.write_text(f"access: {{key: {made.folder}/id_ed25519}}\n")
    return made


def test_another_folder_gets_the_machines_and_its_own_paths(paths: LabPaths, base: Base, tmp_path: Path) -> None:
    LabSnapshot("one").save(paths, base)
    assert names() == ["one"]
    other = LabPaths(tmp_path / "other")
    LabSnapshot("one").load(other, base)
    found = {str(path.relative_to(other.folder)) for path in other.folder.rglob("*") if path.is_file()}
    assert found == {*KEPT, "rack.yaml"}
    assert other.rack.read_text() == f"access: {{key: {other.folder}/id_ed25519}}\n"


def test_holes_stay_holes(paths: LabPaths, base: Base, tmp_path: Path) -> None:
    with (paths.folder / "nodes/spark1/disk.cow").open("wb") as disk:
        disk.truncate(1 << 30)
        disk.seek(1 << 20)
        disk.write(b"written")
    LabSnapshot("one").save(paths, base)
    LabSnapshot("one").load(LabPaths(tmp_path / "other"), base)
    copy = tmp_path / "other/nodes/spark1/disk.cow"
    assert copy.stat().st_size == 1 << 30
    assert copy.stat().st_blocks * 512 < 1 << 20


def test_one_of_another_image_is_refused_before_anything_is_removed(paths: LabPaths, base: Base) -> None:
    LabSnapshot("one").save(paths, base)
    with pytest.raises(LabError, match="snapshot one was made with another image or kernel"):
        LabSnapshot("one").load(paths, Base(base.folder.with_name("image-2"), base.kernel))
    assert (paths.folder / "asked.yaml").exists()


def test_one_that_is_not_there_is_reported_with_those_that_are(paths: LabPaths, base: Base) -> None:
    for name in ("one", "two"):
        LabSnapshot(name).save(paths, base)
    LabSnapshot("one").delete()
    for act in (lambda: LabSnapshot("one").check(base), LabSnapshot("one").delete):
        with pytest.raises(LabError, match="there is no snapshot one; there are: two"):
            act()


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "-x", "a" * 65])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(LabError, match="is not a name for a snapshot"):
        LabSnapshot(name)
