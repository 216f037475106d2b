"""What `sparkrack upgrade switch` refuses: before anything is written to the switch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.emulator.upgrade_runs import SIZE, TARGET, MakePackageOwner, PackageOwner

ROUTEROS, DRIVER = f"routeros-{TARGET}-arm64.npk", f"switch-marvell-{TARGET}-arm64.npk"
Prepare = Callable[[PackageOwner], object]


def _empty_package(owner: PackageOwner) -> None:
    (owner.folder / ROUTEROS).write_bytes(b"")


def _cut_package(owner: PackageOwner) -> None:
    data = (owner.folder / ROUTEROS).read_bytes()
    (owner.folder / ROUTEROS).write_bytes(data[: SIZE // 2])


def _no_package(owner: PackageOwner) -> None:
    (owner.folder / ROUTEROS).write_bytes(b"<html>" + b" " * 100)


def _other_architecture(owner: PackageOwner) -> None:
    for path in owner.folder.iterdir():
        path.rename(path.with_name(path.name.replace("arm64", "arm")))


def _mix_releases(owner: PackageOwner) -> None:
    (owner.folder / DRIVER).unlink()
    owner.put("switch-marvell", "7.23.5")


def _put_older_release(owner: PackageOwner) -> None:
    for path in list(owner.folder.iterdir()):
        path.unlink()
    owner.put("routeros", "7.22.1")
    owner.put("switch-marvell", "7.22.1")


def _put_affected_release(version: str) -> Prepare:
    def prepare(owner: PackageOwner) -> None:
        for path in list(owner.folder.iterdir()):
            path.unlink()
        owner.put("routeros", version)
        owner.put("switch-marvell", version)

    return prepare


def _write_checksums(text: str) -> Prepare:
    return lambda owner: (owner.folder / "SHA256SUMS").write_text(text)


def _add_stray_package(owner: PackageOwner) -> None:
    client = owner.admin()
    client.ask("/file/add", "=name=routeros-7.22.1-arm64.npk", "=contents=x")
    client.close()


BAD: list[tuple[Prepare, str]] = [
    (_empty_package, f"{ROUTEROS}: is empty; download it again"),
    (_cut_package, f"{ROUTEROS}: has {SIZE // 2} bytes, its header says {SIZE}; download it again"),
    (_no_package, f"{ROUTEROS}: is no RouterOS package (it does not begin with 1e f1 d0 ba)"),
    (_other_architecture, "the packages are for arm; the device is arm64"),
    (lambda owner: owner.put("container", architecture="arm"), "more than one architecture: arm, arm64; keep one"),
    (_mix_releases, f"has packages of more than one version: 7.23.5, {TARGET}; keep one"),
    (_put_older_release, "has RouterOS 7.22.1; at least 7.23 is supported, take 7.24.6 (long-term) or 7.25.2 (stable)"),
    (
        _put_affected_release("7.23.3"),
        "the packages are affected: RouterOS 7.23.3: attackers take switches over by SSH",
    ),
    (
        _put_affected_release("7.23.7"),
        "the packages are affected: RouterOS 7.23.7: one request to www or www-ssl runs code as root",
    ),
    (_put_affected_release("7.24"), "`find` in scripts may look up its arguments wrongly"),
    (
        _put_affected_release("7.24.4"),
        "never run, so the rollback timer of a run may not undo it; take 7.24.6 (long-term) or 7.25.2",
    ),
    (lambda owner: (owner.folder / DRIVER).unlink(), f"{DRIVER} is missing: switch-marvell is installed on the device"),
    (lambda owner: (owner.folder / ROUTEROS).unlink(), f"has no {ROUTEROS}"),
    (
        _write_checksums(f"{'0' * 64}  {ROUTEROS}\n{'0' * 64}  {DRIVER}\n"),
        f"SHA256SUMS says {'0' * 64}; download it again",
    ),
    (_write_checksums(f"{'0' * 64}  other.npk\n"), f"SHA256SUMS: has no line for {ROUTEROS}"),
    (_write_checksums("nothing\n"), "SHA256SUMS:1: is not a line of sha256sum"),
]
UNITS: list[tuple[dict[str, Any], str]] = [
    ({"free_space": 4 * SIZE - 1}, f"the device has {4 * SIZE - 1} bytes free; {4 * SIZE} are needed"),
    (
        {"version": "7.25.2 (stable)"},
        f"runs RouterOS 7.25.2 (stable), newer than {TARGET}: a downgrade is not supported",
    ),
    ({"model": "CRS804-4DDQ"}, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
    (
        {"edits": (('# release: "7.24.6"', 'release: "7.25.2"'),)},
        f"the packages are of RouterOS {TARGET}; rack.yaml declares release 7.25.2",
    ),
    ({"edits": (("# serial: HX", "serial: HX"),)}, "has serial number HK70AB12CD3; the rack file means HXXXXXXXXXX"),
]


def _is_refused(owner: PackageOwner, reported: str, *more: str) -> None:
    mark = len(owner.writes())
    code, text = owner.run("-y", *more)
    assert code == 1, text
    assert reported in text
    assert owner.writes()[mark:] == []
    assert not owner.state.exists()


@pytest.mark.parametrize(("prepare", "reported"), BAD)
def test_files(make_owner: MakePackageOwner, prepare: Prepare, reported: str) -> None:
    owner = make_owner()
    prepare(owner)
    _is_refused(owner, reported)


@pytest.mark.parametrize(("unit", "reported"), UNITS)
def test_units(make_owner: MakePackageOwner, unit: dict[str, Any], reported: str) -> None:
    _is_refused(make_owner(**unit), reported)


def test_enough_space_is_enough(make_owner: MakePackageOwner) -> None:
    assert make_owner(free_space=4 * SIZE).run("--dry")[0] == 2


def test_a_package_that_another_user_left_on_the_switch(make_owner: MakePackageOwner) -> None:
    owner = make_owner()
    _add_stray_package(owner)
    _is_refused(
        owner, "routeros-7.22.1-arm64.npk is on the device and would be installed, too; remove it: /file/remove"
    )


def test_a_switch_that_another_session_changes(make_owner: MakePackageOwner) -> None:
    owner = make_owner(version="7.20.8 (stable)")
    client = owner.admin()
    client.ask("/safe-mode/take")
    _is_refused(owner, "safe mode is held by admin (")
    client.close()


def test_a_switch_with_an_armed_rollback_timer(make_owner: MakePackageOwner) -> None:
    owner = make_owner()
    client = owner.admin()
    client.ask("/system/scheduler/add", "=name=sparkrack-undo-20260101T000000-0001", "=interval=1h")
    client.close()
    _is_refused(owner, "rollback timer sparkrack-undo-20260101T000000-0001 is armed and would act after the restart")


def test_checksums_of_another_file(make_owner: MakePackageOwner) -> None:
    owner = make_owner()
    sums = owner.workdir.folder / "sums"
    lines = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in owner.folder.iterdir()}
    sums.write_text("".join(f"{digest} *./{name}\n" for name, digest in lines.items()))
    assert owner.run("--dry", "--sha256", str(sums))[0] == 2
    sums.write_text(sums.read_text().replace(lines[DRIVER], "1" * 64))
    _is_refused(owner, f"has sha256 {lines[DRIVER]}, sums says {'1' * 64}", "--sha256", str(sums))


def test_a_folder_without_packages(make_owner: MakePackageOwner) -> None:
    owner = make_owner()
    _is_refused(owner, "--packages is a folder with .npk files", "--packages", str(owner.folder / "none"))
    _is_refused(owner, "has no .npk file", "--packages", str(owner.workdir.folder))


def test_first_contact_names_the_command(make_owner: MakePackageOwner) -> None:
    code, text = make_owner().workdir.run()
    assert code == 1
    assert "at least 7.23 is needed, take 7.24.6 (long-term) or 7.25.2 (stable): sparkrack upgrade switch --pa" in text
