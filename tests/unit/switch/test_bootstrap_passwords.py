"""Passwords that a switch is given: strong, kept before they are set, and never shown."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

import pytest

from core.model import SecretError, SecretRef
from switch.bootstrap.passwords import Password, weakness

STRONG = "correct-horse-battery-Staple"


def kept(path: Path) -> Password:
    return Password(SecretRef(file=path))


def test_one_of_256_bits_is_made_once(tmp_path: Path) -> None:
    password = kept(tmp_path / "own")
    assert not password.there
    assert password.make()
    text = (tmp_path / "own").read_text()
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
    assert password.get().get_secret_value() == text.strip()
    assert len(text.strip()) * math.log2(64) >= 256
    assert not weakness(text.strip())
    assert (password.make(), (tmp_path / "own").read_text()) == (False, text)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert text.strip() not in repr(password) + str(password)


def test_two_are_not_the_same(tmp_path: Path) -> None:
    for name in "ab":
        kept(tmp_path / name).make()
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


def test_a_file_that_comes_to_be_in_between_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own"
    link = os.link

    def late(source: str, target: Path) -> None:
        path.write_text(STRONG)
        path.chmod(0o600)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    password = kept(path)
    assert not password.make()
    assert password.get().get_secret_value() == STRONG
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SecretError, match=r"file .*own cannot be made: No space left on device; check its folder"):
        kept(tmp_path / "own").make()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="cannot be made: No such file or directory"):
        kept(tmp_path / "none" / "own").make()


def test_a_link_to_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "own").symlink_to("elsewhere")
    password = kept(tmp_path / "own")
    assert password.there
    assert not password.make()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("reference", [{"env": "NO_SUCH_VARIABLE"}, {"command": ("false",)}])
def test_only_files_are_made(reference: dict[str, object]) -> None:
    password = Password(SecretRef.model_validate(reference))
    assert password.there
    assert not password.make()


def test_fetched_once(tmp_path: Path) -> None:
    """A command may ask its user for a touch or a word."""
    count, script = tmp_path / "count", tmp_path / "tell"
    script.write_text(f"#!/bin/sh\necho x >> {count}\necho {STRONG}\n")
    script.chmod(0o700)
    password = Password(SecretRef(command=(str(script),)))
    assert password.get() == password.get()
    assert count.read_text() == "x\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (STRONG, ""),
        ("x" * 19, "it has fewer than 20 characters"),
        ("x" * 200, "it is made of fewer than 10 different characters"),
        ("abcdefghijklmnopqrst", ""),
        ("abcdefghijklmnopqrs", "it has fewer than 20 characters"),
        ("abcdefghijklmnopqrs\n", "it has characters other than the printable ones of ASCII"),
        ("abcdefghijklmnopqrsü", "it has characters other than the printable ones of ASCII"),
    ],
)
def test_strength(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weakness(text) == why
    monkeypatch.setenv("OWN", f"{text}\n")
    if why:
        with pytest.raises(SecretError) as caught:
            Password(SecretRef(env="OWN")).get()
        assert str(caught.value).startswith(f"environment variable OWN is too weak for a switch: {why}; take one of")
        assert text not in str(caught.value)
