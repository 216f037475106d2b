"""A rack file of the version before is read: one line for each key that moved, and both places are an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.model import ConfigError, load, moved_keys
from core.model.moved_keys import ANY, MovedKey
from tests.unit.model.racks import SWITCH

ENTRIES = (
    MovedKey(("nodes", ANY, "management"), ("nodes", ANY, "address"), "0.2.0"),
    MovedKey(("ssh", "login"), ("access", "user"), "0.2.0"),
)


@pytest.fixture(autouse=True)
def _moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_keys, "MOVED", ENTRIES)
    monkeypatch.setattr(moved_keys, "_reported", set())


def written(folder: Path, text: str) -> Path:
    file = folder / "rack.yaml"
    file.write_text(text)
    return file


def old() -> str:
    """A file of the version before: two keys of nodes, and a section that is no more."""
    lines = []
    section = ""
    for line in SWITCH.splitlines():
        section = line if line and not line.startswith(" ") else section
        if section == "nodes:":
            line = line.replace("address:", "management:")
        if not (section == "access:" and line.strip().startswith("user:")):
            lines.append(line)
        else:
            login = line.partition(":")[2].strip()
    return "\n".join([*lines, "ssh:", f"  login: {login}"]) + "\n"


def test_each_key_is_read_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = load(written(tmp_path, SWITCH))
    assert capsys.readouterr().err == ""
    text = old()
    file = written(tmp_path, text)
    found = load(file)
    assert (found.nodes, found.access) == (new.nodes, new.access)
    err = capsys.readouterr().err.splitlines()
    lines = text.splitlines()
    assert len(err) == len(new.nodes) + 1
    number = 1 + next(at for at, line in enumerate(lines) if "management:" in line)
    assert err[0] == (
        f"{file}:{number}: nodes.spark1.management moved to nodes.spark1.address in 0.2.0; "
        "it is read there; write it there"
    )
    assert err[-1].startswith(f"{file}:{len(lines)}: ssh.login moved to access.user in 0.2.0")
    load(file)
    assert capsys.readouterr().err == "", "once for a process"


def test_both_places_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, f"{SWITCH}\nssh:\n  login: ann\n"))
    assert "ssh.login: moved to access.user, which is there, too" in str(caught.value)
    assert "remove one of the two" in str(caught.value)


def test_a_wrong_value_is_reported_with_its_line(tmp_path: Path) -> None:
    text = old().replace("login: ", "login: [1] #")
    with pytest.raises(ConfigError, match=rf":{len(text.splitlines())}: access.user"):
        load(written(tmp_path, text))


def test_a_place_that_is_no_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="access"):
        load(written(tmp_path, "rack: two\naccess: 5\nssh:\n  login: ann\n"))


def test_without_entries_an_unknown_key_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_keys, "MOVED", ())
    with pytest.raises(ConfigError, match="management: unknown key"):
        load(written(tmp_path, old()))
