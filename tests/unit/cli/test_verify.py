"""`sparkrack verify` when nothing can be proven: exit 1, the reason in words, no traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.fleet.racks import DIRECT, SWITCH, changed

from .runs import Ended, command


@pytest.fixture
def closed() -> int:
    """A port of this machine that nobody answers on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def nobody(folder: Path, text: str, closed: int) -> Path:
    """A rack whose machines are this machine's loopback, where nothing listens."""
    text = text.replace("10.77.0.", "127.77.0.")
    (folder / "known_hosts").touch()
    rack = folder / "rack.yaml"
    rack.write_text(text)
    return rack


@pytest.fixture
def direct(tmp_path: Path, closed: int) -> Path:
    text = changed(DIRECT, ("known_hosts: known_hosts}", f"known_hosts: known_hosts, port: {closed}}}"))
    return nobody(tmp_path, text, closed)


@pytest.fixture
def switched(tmp_path: Path, closed: int) -> Path:
    port = ("known_hosts: known_hosts\n", f"known_hosts: known_hosts\n  port: {closed}\n")
    text = changed(SWITCH, port, ("    user: sparkrack", f"    port: {closed}\n    user: sparkrack"))
    return nobody(tmp_path, text, closed)


def verify(rack: Path, *words: str | Path, word: str = "unused") -> Ended:
    ended = command("sparkrack", "verify", "--rack", rack, *words, CRS812_PASSWORD=word)
    assert "Traceback" not in ended.text, ended.text
    assert "INTERNALERROR" not in ended.text, ended.text
    return ended


def test_a_name_that_is_not_in_the_rack(switched: Path) -> None:
    ended = verify(switched, "--limit", "spark1", "--limit", "spark9")
    assert ended.code == 1
    assert ended.stderr == "Error: --limit spark9: not in the rack; there are spark1, spark2, crs812\n"


def test_nodes_that_do_not_answer(direct: Path, tmp_path: Path) -> None:
    ended = verify(direct, "--junit", tmp_path / "out.xml")
    assert ended.code == 1, ended.text
    assert "Connection refused" in ended.text
    assert "0 passed" in ended.text
    for name in ("left", "right"):
        assert name in ended.text
    assert (tmp_path / "out.xml").exists()


def test_one_node_that_does_not_answer(switched: Path) -> None:
    ended = verify(switched, "--limit", "spark2")
    assert ended.code == 1, ended.text
    assert "Connection refused" in ended.text


def test_a_switch_that_does_not_answer(switched: Path) -> None:
    ended = verify(switched, "--limit", "crs812", word="hunter2")
    assert ended.code == 1, ended.text
    assert "refused" in ended.text
    assert "hunter2" not in ended.text


def test_a_secret_that_is_missing(switched: Path) -> None:
    ended = verify(switched, "--limit", "crs812", word="")
    assert ended.code == 1, ended.text
    assert "CRS812_PASSWORD" in ended.text
