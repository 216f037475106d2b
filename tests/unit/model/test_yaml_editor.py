"""Setting one value in a rack file: nothing else of it changes, and no other change is lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import ConfigError, load, yaml_editor, yaml_reader
from tests.unit.model.racks import KEPT, SWITCH, changed
from tests.unit.model.random_racks import any_rack

REFERENCE = Path(__file__).parents[3] / "examples" / "rack.yaml"
PIN = ("switches", "crs812", "tls", "sha256")
NEW = "0123456789abcdef" * 4
OLD = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rack.yaml"
    path.write_bytes(REFERENCE.read_bytes())
    return path


def refused(path: Path, place: tuple[object, ...] = PIN, snapshot: yaml_editor.FileSnapshot | None = None) -> str:
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        (snapshot or yaml_editor.snapshot(path)).put(place, NEW)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "something is left beside it"
    return str(caught.value).removeprefix(str(path))


def test_only_the_fingerprint_of_the_reference_rack_changes(file: Path) -> None:
    before = file.read_bytes()
    assert before.count(OLD.encode()) == 1
    after = yaml_editor.snapshot(file).put(PIN, NEW)
    assert file.read_bytes() == after.data == before.replace(OLD.encode(), NEW.encode())
    tls = load(file).switches["crs812"].tls
    assert tls
    assert tls.sha256 == NEW


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ('"aa:bb"', f'"{NEW}"'),
        ("'aa:bb'", f"'{NEW}'"),
        ("aabb", NEW),
        ('""', f'"{NEW}"'),
        ('"aabb"   # seen on its console', f'"{NEW}"   # seen on its console'),
    ],
)
@pytest.mark.parametrize("form", ["{{sha256: {0}}}", "\n      # why\n      sha256:   {0}"])
def test_quotes_spaces_and_comments_stay(tmp_path: Path, written: str, becomes: str, form: str) -> None:
    if "#" in written and form.startswith("{"):
        form = "{{sha256: {0}\n    }}"
    text = "a: ü  # ünï\r\nswitches:\r\n  crs812:\r\n    tls: {0}\r\nb:   [1,2 ]"
    path = tmp_path / "rack.yaml"
    path.write_bytes(text.format(form.format(written)).encode())
    yaml_editor.snapshot(path).put(PIN, NEW)
    assert path.read_bytes().decode() == text.format(form.format(becomes))


@pytest.mark.parametrize(
    "value", ["0" * 64, "1e10", "true", "it's", 'say "x"', "a: b # c", "", "12", "~", "back\\slash"]
)
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_text_stays_a_text(tmp_path: Path, value: str, quote: str) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(f"rack: {quote}old{quote}\nlist: [1, {quote}x{quote}]\n")
    yaml_editor.snapshot(path).put(("list", 1), value).put(("rack",), value)
    assert yaml_reader.parse(path.read_text()).data == {"rack": value, "list": [1, value]}


@given(text=any_rack, name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True))
def test_any_rack_keeps_the_rest(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    path = tmp_path_factory.mktemp("any") / "rack.yaml"
    path.write_text(text)
    yaml_editor.snapshot(path).put(("rack",), name)
    assert path.read_text().splitlines()[1:] == text.splitlines()[1:]
    assert load(path).rack == name


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_the_mode_stays(file: Path, mode: int) -> None:
    file.chmod(mode)
    yaml_editor.snapshot(file).put(PIN, NEW)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert [entry.name for entry in file.parent.iterdir()] == ["rack.yaml"]


def test_a_link_stays_a_link(file: Path) -> None:
    (file.parent / "below").mkdir()
    link = file.parent / "below" / "rack.yaml"
    link.symlink_to("../rack.yaml")
    yaml_editor.snapshot(link).put(PIN, NEW)
    assert link.is_symlink()
    assert NEW in file.read_text()


def test_what_is_written_already_is_not_written_again(file: Path) -> None:
    first = yaml_editor.snapshot(file).put(PIN, NEW)
    inode = file.stat().st_ino
    assert first.put(PIN, NEW) == first
    assert file.stat().st_ino == inode


@pytest.mark.parametrize(
    "change",
    [
        ("rack: spark8  ", "rack: spark9  "),
        (f'sha256: "{OLD}"', f'sha256: "{NEW}"'),
        ("  - scitrera/dgx-spark-sglang:0.5.12\n", ""),
    ],
)
def test_a_change_of_another_user_is_not_lost(file: Path, change: tuple[str, str]) -> None:
    snapshot = yaml_editor.snapshot(file)
    lines = file.read_text().splitlines()
    file.write_text(changed(file.read_text(), change))
    expected = next(n for n, old in enumerate(lines, 1) if change[0].strip() in old)
    assert refused(file, snapshot=snapshot) == (
        f":{expected}: was changed by another program during this run; look at it, then run again"
    )


def test_a_file_that_went_away(file: Path) -> None:
    snapshot = yaml_editor.snapshot(file)
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read or written: No such file"):
        snapshot.put(PIN, NEW)
    assert not file.exists()


@pytest.mark.parametrize(
    ("place", "reported"),
    [
        (("switches", "other", "tls", "sha256"), "switches.other: is not in the file; "),
        (("switches", "crs812", "serial"), "switches.crs812.serial: is not in the file; "),
        (("switches", "crs812", "tls"), "switches.crs812.tls: is not a value on one line; "),
        (("rack", "below"), "rack.below: is not in the file; "),
        (("images", 7), "images.7: is not in the file; "),
    ],
)
def test_what_is_not_a_value(file: Path, place: tuple[object, ...], reported: str) -> None:
    line, _, text = refused(file, place).removeprefix(":").partition(": ")
    assert line.isdigit()
    assert text.startswith(reported)


def test_text_over_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text("rack: one\n  two\n")
    assert refused(path, ("rack",)) == ":1: rack: is not a value on one line; write it as one word"


@pytest.mark.parametrize(("content", "reported"), [(b"\xff", "is not UTF-8 text"), (b"a: [", "is not sound YAML")])
def test_no_rack_at_all(tmp_path: Path, content: bytes, reported: str) -> None:
    path = tmp_path / "rack.yaml"
    path.write_bytes(content)
    assert reported in refused(path)


def test_a_tag_or_anchor_is_not_torn(tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text("rack: &a spark8\nother: *a\n")
    assert "cannot be set without touching more" in refused(path, ("rack",))


@pytest.mark.parametrize("text", [SWITCH, KEPT], ids=["switch", "kept"])
def test_the_pins_of_the_other_racks(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(text)
    yaml_editor.snapshot(path).put(PIN, NEW)
    changed_lines = [(a, b) for a, b in zip(text.split("\n"), path.read_text().split("\n"), strict=True) if a != b]
    assert len(changed_lines) == 1
    assert NEW in changed_lines[0][1]


def test_an_error_of_the_disk_is_reported_and_nothing_is_left(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert refused(file) == ": cannot be read or written: No space left on device; check the file and its folder"


ENTRIES = {
    "images": ["a/b:1"],
    "models": {"m": {"source": "x/y"}},
    "serving": {"units": {"u": {"engine": "vllm", "nodes": ["spark1"]}}},
}
ADDED = """\
images:
- a/b:1
models:
  m:
    source: x/y
serving:
  units:
    u:
      engine: vllm
      nodes:
      - spark1
"""


def with_entries(text: str) -> str:
    return yaml_editor.FileSnapshot(Path("rack.yaml"), text.encode()).with_entries(ENTRIES).data.decode()


@pytest.mark.parametrize("end", ["\n", ""])
def test_sections_that_are_absent_are_appended(end: str) -> None:
    assert with_entries(f"rack: one  # a comment{end}") == f"rack: one  # a comment\n{ADDED}"


def test_entries_of_a_section_that_is_there_stand_before_its_first_one_in_its_indentation() -> None:
    before = (
        "images:\n  # ours\n  - z/z:1\nmodels:\n    k: {source: q}   # kept\n"
        "serving:\n  port: 3\n  units:\n    v:\n      engine: vllm\nrack: one\n"
    )
    assert with_entries(before) == (
        "images:\n  # ours\n  - a/b:1\n  - z/z:1\nmodels:\n    m:\n      source: x/y\n    k: {source: q}   # kept\n"
        "serving:\n  port: 3\n  units:\n    u:\n      engine: vllm\n      nodes:\n      - spark1\n    v:\n"
        "      engine: vllm\nrack: one\n"
    )


def test_entries_that_are_there_already_are_not_added_again() -> None:
    assert with_entries(ADDED) == ADDED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("images: [z]\n", ":1: images: takes no further lines as it is written"),
        ("serving: {units: {}}\n", ":1: serving.units: takes no further lines as it is written"),
        ("images:\n", ":2: images: is there with another value"),
        ("models:\n  m: {source: z/z}\n", ":2: models.m.source: is there with another value"),
        ("", "is empty"),
        ("rack: one\n...\n", "takes no further entries as it is written"),
        ("a: [\n", "is not sound YAML"),
    ],
)
def test_a_file_that_takes_no_entries_is_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_entries(text)
    assert said in str(caught.value)
