from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from core.model.secrets import SecretRef
from core.routeros.errors import CheckError, SentenceError
from core.routeros.menus import SERVICE
from core.routeros.reading import read_switch
from switch.backup import KEPT, Keeper, dump, folder, load, names, oldest
from tests.unit.switch.in_memory_switch import Device, Session
from tests.unit.switch.rows import asking, factory


def keeper(place: Path, most: int = 3) -> Keeper:
    return Keeper(place, most, lambda: SecretStr("swordfish"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "crs812"


def test_a_backup_holds_what_the_switch_gave(device: Device, place: Path) -> None:
    kept = keeper(place).keep(device.line(), "run-1")
    assert {path.name for path in kept.iterdir()} == {"export.rsc", "unit.backup", "rows.json"}
    assert (kept / "export.rsc").read_bytes() == b"# export\n" + b"/ip/service\n" * 5000
    assert (kept / "unit.backup").read_bytes() == bytes(range(256)) * 256
    assert device.files == {}, "nothing is left on the switch"
    rows, before = load(kept / "rows.json"), read_switch(asking(factory()), KEPT, KEPT)
    assert [rows.rows(menu) for menu in KEPT] == [before.rows(menu) for menu in KEPT]


def test_only_its_owner_may_read_it(device: Device, place: Path) -> None:
    kept = keeper(place).keep(device.line(), "run-1")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}


def test_the_unit_is_saved_encrypted_and_the_password_is_said_once(device: Device, place: Path) -> None:
    keeper(place).keep(device.line(), "run-1")
    reported = [words for words in device.heard if any("swordfish" in word for word in words)]
    assert [words[0] for words in reported] == ["/system/backup/save"]
    assert "=encryption=aes-sha256" in reported[0]
    everything = b"".join(path.read_bytes() for path in (place / "run-1").iterdir())
    assert b"swordfish" not in everything


def test_the_first_and_the_newest_stay_when_there_are_too_many(device: Device, place: Path) -> None:
    line = device.line()
    for number in range(1, 6):
        keeper(place, most=3).keep(line, f"run-{number}")
    assert names(place) == ["run-1", "run-3", "run-4", "run-5"]
    assert oldest(place) == "run-1", "what the switch was before any run"
    assert oldest(place / "missing") is None


def test_what_is_not_a_backup_is_left_alone(device: Device, place: Path) -> None:
    (place / "notes").mkdir(parents=True)
    keeper(place, most=1).keep(device.line(), "run-1")
    assert (place / "notes").is_dir()
    assert names(place) == ["run-1"]
    assert names(place / "missing") == []


@pytest.mark.parametrize("command", ["/export", "/system/backup/save", "/file/print", "/ip/service/print"])
def test_a_backup_that_fails_leaves_nothing_behind(device: Device, place: Path, command: str) -> None:
    line = device.line()
    device.main.trap = lambda words: words[0] == command
    with pytest.raises(CheckError, match=r"^the switch gave no backup: .*refused$") as raised:
        keeper(place).keep(line, "run-1")
    assert "swordfish" not in str(raised.value)
    assert names(place) == []
    assert not (place / "run-1").exists()
    if command != "/file/print":  # then the switch does not say what is to be removed
        assert device.files == {}


def test_a_lost_session_is_a_check_that_failed(device: Device, place: Path) -> None:
    line = device.line()
    device.main.lose = lambda words: "after" if words[0] == "/system/backup/save" else ""
    with pytest.raises(CheckError, match="closed"):
        keeper(place).keep(line, "run-1")
    assert not (place / "run-1").exists()


def test_a_password_that_cannot_be_had_leaves_nothing_behind(device: Device, place: Path) -> None:
    with pytest.raises(CheckError, match="environment variable NOT_SET is not set"):
        Keeper(place, 3, SecretRef(env="NOT_SET").resolve).keep(device.line(), "run-1")
    assert not (place / "run-1").exists()


def test_rows_no_switch_has_leave_nothing_behind(device: Device, place: Path) -> None:
    device.tables["/system/identity"] = []
    device.tables["/interface/ethernet"] = []
    with pytest.raises(CheckError, match="/interface/ethernet has no rows"):
        keeper(place).keep(device.line(), "run-1")
    assert not (place / "run-1").exists()


def test_an_empty_file_is_not_a_backup(device: Device, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.switch.in_memory_switch.Session.talk_bytes", lambda *_: [])
    with pytest.raises(CheckError, match=r"run-1\.rsc is empty"):
        keeper(place).keep(device.line(), "run-1")


def test_a_folder_that_cannot_be_made_is_reported(device: Device, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckError, match="no backup could be kept"):
        keeper(tmp_path / "file" / "x").keep(device.line(), "run-1")


def test_a_backup_is_never_written_over(device: Device, place: Path) -> None:
    line = device.line()
    kept = keeper(place).keep(line, "run-1")
    device.files.clear()
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    with pytest.raises(CheckError):
        keeper(place).keep(line, "run-1")
    assert kept.is_dir(), "the one that was there"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    tables = factory()
    del tables["/interface/ethernet/switch/qos/settings"]
    reading = read_switch(asking(tables), KEPT, KEPT)
    path = tmp_path / "rows.json"
    path.write_bytes(dump(reading))
    assert load(path) == reading
    assert load(path).rows(SERVICE) == reading.rows(SERVICE)
    assert "/interface/ethernet/switch/qos/settings" in load(path).absent


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"release": [7], "tables": {}, "absent": []}', "\xff", '{"tables": 3}']
)
def test_what_is_not_a_backup_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CheckError, match="is not a backup of a switch"):
        load(path)
    with pytest.raises(CheckError, match="is not a backup of a switch"):
        load(tmp_path / "missing")


def test_backups_are_in_the_state_folder_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert folder("spark8", "crs812") == Path("/var/state/sparkrack/spark8/crs812")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ops")
    assert folder("spark8", "crs812") == Path("/home/ops/.local/state/sparkrack/spark8/crs812")


def test_a_backup_holds_no_secret(device: Device, place: Path) -> None:
    kept = keeper(place).keep(device.line(), "run-1")
    for rows in json.loads((kept / "rows.json").read_text())["tables"].values():
        assert not [name for row in rows for name in row if name.endswith("password")]


def test_the_flash_that_is_full_is_the_switchs(device: Device, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line, answer = device.line(), device.answer

    def full(session: Session, words: tuple[str, ...]) -> list[dict[str, str]]:
        if words[0] == "/export":
            raise SentenceError("failure: not enough space on the flash")
        return answer(session, words)

    monkeypatch.setattr(device, "answer", full)
    with pytest.raises(CheckError) as raised:
        keeper(place).keep(line, "run-1")
    assert str(raised.value) == (
        "the switch gave no backup: failure: not enough space on the flash; its own flash is full, remove files there "
        "(/file/print)"
    )
    assert str(place) not in str(raised.value)


def test_a_disk_that_is_full_is_this_machines(device: Device, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("switch.backup._write_file", full)
    with pytest.raises(CheckError, match=f"^no backup could be kept in {place}: .*No space left on device"):
        keeper(place).keep(device.line(), "run-1")
