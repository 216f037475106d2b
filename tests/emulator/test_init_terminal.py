"""`sparkrack init` with a person at the terminal, who is asked what no option says."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.model import load
from tests import own_terminal
from tests.unit.discovery.shellnode import ShellNode, key_file, standing
from tests.unit.discovery.worlds import world
from tests.unit.model.racks import DIRECT, loaded

PROGRAM = str(Path(sys.executable).with_name("sparkrack"))
NEAR = """
from sparkrack.cli.main import sparkrack
from sparkrack.discovery import neighbours
from sparkrack.discovery.advertisements import Advertised
neighbours.nodes = lambda: ((Advertised("office-mac", "127.0.89.9"), Advertised("spark1", "127.0.89.11")), "")
sparkrack(prog_name="sparkrack")
"""
"""The program on a network on which two machines announce ssh; nothing is sent to the network of this machine."""


@pytest.fixture(scope="module", autouse=True)
def _no_nodes() -> None:
    """Here are nodes, and the real ssh."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, ShellNode]]:
    reported = world(loaded(DIRECT))
    found = standing(tmp_path, reported, dict(zip(reported.nodes, ("127.0.89.11", "127.0.89.12"), strict=True)))
    yield found
    for node in found.values():
        node.close()


class Person:
    """Someone who reads and answers."""

    def __init__(self, *words: str, program: tuple[str, ...] = (PROGRAM,)) -> None:
        self.shown = ""
        self._from = 0
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
        self._process, self._end = own_terminal.start([*program, *words], environment)

    def answers(self, question: str, text: str) -> None:
        until = time.monotonic() + 60
        while question not in self.shown[self._from :]:
            assert time.monotonic() < until, self.shown
            assert self._more(), self.shown
        self._from = self.shown.index(question, self._from) + len(question)
        os.write(self._end, f"{text}\n".encode())

    def ends(self) -> int:
        while self._more():
            pass
        return self._process.wait()

    def _more(self) -> bool:
        if not select.select([self._end], [], [], 60)[0]:
            self._process.kill()
            return False
        try:
            data = os.read(self._end, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


def words(folder: Path, nodes: dict[str, ShellNode]) -> list[str]:
    port = next(iter(nodes.values())).port
    named = [word for at, name in enumerate(nodes) for word in ("--node", f"{name}=127.0.89.{11 + at}")]
    return ["init", "--out", str(folder / "rack.yaml"), *named, "--ssh-port", str(port), "--switch", "-"]


def test_a_person_confirms_each_host_key_and_says_what_no_option_says(
    tmp_path: Path, nodes: dict[str, ShellNode]
) -> None:
    person = Person(*words(tmp_path, nodes))
    person.answers("user that the nodes accept [ops]:", "me")
    person.answers("key that they accept [~/.ssh/id_", str(key_file(tmp_path)))
    for name, node in nodes.items():
        person.answers(f"are these the host keys of {name}, as its console shows them? [y/N]:", "y")
        assert f"{name}: {node.host_key.kind} {node.host_key.fingerprint}" in person.shown
    person.answers("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "n")
    assert person.ends() == 0, person.shown
    rack = load(tmp_path / "rack.yaml")
    assert rack.access.user == "me"
    assert rack.topology == "direct"
    assert rack.cabling == loaded(DIRECT).cabling
    assert len((tmp_path / "known_hosts").read_text().splitlines()) == 2


@pytest.mark.parametrize("right", [True, False], ids=["announced", "typed"])
def test_machines_that_no_option_names_are_asked_for(tmp_path: Path, nodes: dict[str, ShellNode], right: bool) -> None:
    port = str(next(iter(nodes.values())).port)
    out = tmp_path / "new" / "folder" / "rack.yaml"
    more = ["--user", "me", "--key", str(key_file(tmp_path)), "--ssh-port", port, "--vendor", "asus"]
    person = Person("init", "--out", str(out), "--switch", "-", *more, program=(sys.executable, "-c", NEAR))
    person.answers("is office-mac (127.0.89.9) a node of this rack?", "n")
    person.answers("is spark1 (127.0.89.11) a node of this rack?", "y" if right else "n")
    if not right:
        person.answers("the first node, as ADDRESS or NAME=ADDRESS:", "spark1=ten")
        person.answers("the first node, as ADDRESS or NAME=ADDRESS:", "127.0.89.11")
        assert "ten is not an IPv4 address" in person.shown
    person.answers("another node, as ADDRESS or NAME=ADDRESS; - for none [-]:", "")
    person.answers("are these the host keys of spark1", "y")
    person.answers("Also hold the driver", "")
    assert person.ends() == 0, person.shown
    assert list(load(out).nodes) == ["spark1"]
    assert (out.parent / "known_hosts").exists()


def test_a_no_to_a_host_key_ends_it_with_nothing_written(tmp_path: Path, nodes: dict[str, ShellNode]) -> None:
    person = Person(*words(tmp_path, nodes), "--user", "me", "--key", str(key_file(tmp_path)))
    person.answers("are these the host keys of", "n")
    assert person.ends() == 1
    assert "its host key was not confirmed; nothing was written" in person.shown
    assert not (tmp_path / "rack.yaml").exists()
    assert not (tmp_path / "known_hosts").exists()
    assert not any(node.commands for node in nodes.values())


def test_a_no_to_the_difference_leaves_the_file(tmp_path: Path, nodes: dict[str, ShellNode]) -> None:
    (tmp_path / "rack.yaml").write_text("rack: mine\n")
    keys = tmp_path / "host-keys"
    keys.write_text("".join(f"{name} {node.host_key.fingerprint}\n" for name, node in nodes.items()))
    more = ["--user", "me", "--key", str(key_file(tmp_path)), "--host-keys", str(keys)]
    person = Person(*words(tmp_path, nodes), *more)
    person.answers("Also hold the driver", "n")
    person.answers("write over", "n")
    assert person.ends() == 1
    assert "-rack: mine" in person.shown
    assert (tmp_path / "rack.yaml").read_text() == "rack: mine\n"
