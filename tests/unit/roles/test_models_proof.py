"""The proof of the role models on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from testinfra.backend.base import CommandResult

from core.model.model_lock import ModelFile, ModelRecord
from core.model.models import Model
from roles.models import verify
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in
from tests.unit.roles.checked_node import Machine
from tests.unit.roles.models_hub import sha256

RACK = loaded(changed(SWITCH, ("rack: two", "rack: two\nmodels: {m: {source: a/b}, n: {source: a/c}}")))
CONTENTS = {"config.json": b"{}", "sub/big file.bin": b"x" * 5000, "-x": b"y", "$(reboot)": b"z"}
FILES = tuple(ModelFile(path, len(content), sha256(content)) for path, content in CONTENTS.items())
RECORD = ModelRecord("a/b", "c" * 40, FILES, {})


class StoreMachine(Machine):
    """Its store is in its folder."""

    def run(self, command: str, *args: str, **options: object) -> CommandResult:
        return super().run(command.replace("/srv/models", f"{self.backend.root}/srv/models"), *args, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("m", "n"):
        for path, content in CONTENTS.items():
            file = tmp_path / "srv/models" / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (tmp_path / "srv/models" / name / ".sparkrack/parts").mkdir(parents=True)
    stand_in(tmp_path, "systemctl")
    return tmp_path


def failures(root: Path, **lock: ModelRecord) -> list[str]:
    machine, spark1, reported = StoreMachine(root), RACK.nodes["spark1"], []

    def check(test: Callable[..., None], *arguments: object) -> None:
        try:
            test(*arguments)
        except AssertionError as error:
            reported.append(str(error).splitlines()[0].replace(str(root), ""))

    check(verify.test_each_file_is_what_the_lock_file_says, RACK, spark1, machine, lock or {"m": RECORD, "n": RECORD})
    check(verify.test_no_file_is_incomplete, RACK, spark1, machine)
    check(verify.test_nothing_is_on_its_way, spark1, machine)
    return reported


def test_a_node_that_is_right(root: Path) -> None:
    assert failures(root) == []


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1, 1, 1, 1]), (5001, [1, 2, 1]), (5004, [4])])
def test_several_commands(root: Path, monkeypatch: pytest.MonkeyPatch, batch: int, sizes: list[int]) -> None:
    monkeypatch.setattr(verify, "BATCH", batch)
    assert [len(files) for files in verify._split_into_batches(FILES)] == sizes
    assert failures(root) == []
    (root / "srv/models/n/-x").write_bytes(b"Y")
    assert len(failures(root)) == 1


def test_a_model_that_is_not_in_the_lock_file(root: Path) -> None:
    (reported,) = failures(root, m=RECORD)
    assert reported == "spark1: rack.lock.json does not have n; run the deploy"


@pytest.mark.parametrize("path", CONTENTS)
def test_a_flipped_byte(root: Path, path: str) -> None:
    file = root / "srv/models/n" / path
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    wanted = sha256(CONTENTS[path])[:12]
    assert failures(root) == [
        f"spark1: /srv/models/n/{path} has the sha256 {sha256(bytes(content))[:12]}, wanted {wanted}"
    ]


@pytest.mark.parametrize("path", CONTENTS)
def test_a_file_that_is_missing_or_a_link(root: Path, path: str) -> None:
    file = root / "srv/models/m" / path
    file.rename(root / "elsewhere")
    assert failures(root) == [f"spark1: /srv/models/m/{path} is missing"]
    file.symlink_to(root / "elsewhere")
    assert failures(root) == [f"spark1: /srv/models/m/{path} is missing"]


def test_a_part_that_is_left(root: Path) -> None:
    (root / "srv/models/m/.sparkrack/parts/0123").touch()
    (reported,) = failures(root)
    assert "/srv/models/m/.sparkrack/parts has files that are not complete" in reported


def test_a_transfer_that_runs(root: Path) -> None:
    stand_in(root, "systemctl", "echo 'sparkrack-model-m.service loaded active running x'")
    assert failures(root) == ["spark1: models are still being fetched: sparkrack-model-m.service"]
    stand_in(root, "systemctl", "echo 'no bus' >&2; exit 1")
    assert failures(root) == ["spark1: systemctl: no bus"]


def test_a_model_is_one_folder() -> None:
    assert str(Model(name="m", source="a/b").folder) == "/srv/models/m"


@pytest.mark.parametrize(
    ("words", "why"), [("echo 'input/output error' >&2; ", "input/output error"), ("", "sha256sum fails")]
)
def test_a_disk_that_cannot_be_read_is_named(root: Path, words: str, why: str) -> None:
    stand_in(root, "xargs", f"{words}exit 123")
    assert failures(root) == [f"/srv/models/m: {why}"]
