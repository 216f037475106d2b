"""`sparkrack init` with a person at the terminal, who is asked what no option says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.model import load
from tests.generated import check
from tests.own_terminal import Terminal
from tests.unit.cli.replayed_terminal import lines_of_screen
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
TWO_SPARKS = (
    NEAR.replace('"office-mac", "127.0.89.9"', '"spark1", "127.0.89.11"')
    .replace('Advertised("spark1", "127.0.89.11")), "")', 'Advertised("spark2", "127.0.89.12")), "")')
    .replace("sparkrack(prog", "neighbours.switches = lambda: ()\nsparkrack(prog")
)
"""The same with two Sparks and nothing else."""


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


class Person(Terminal):
    """Someone who reads and answers."""

    def __init__(
        self,
        *words: str,
        program: tuple[str, ...] = (PROGRAM,),
        folder: Path | None = None,
        columns: int = 200,
        **env: str,
    ) -> None:
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": str(columns), **env}
        super().__init__([*program, *words], environment, folder)


def words(folder: Path, nodes: dict[str, ShellNode]) -> list[str]:
    port = next(iter(nodes.values())).port
    named = [word for at, name in enumerate(nodes) for word in ("--node", f"{name}=127.0.89.{11 + at}")]
    return ["init", "--out", str(folder / "rack.yaml"), *named, "--ssh-port", str(port), "--switch", "-"]


def test_a_person_confirms_each_host_key_and_says_what_no_option_says(
    tmp_path: Path, nodes: dict[str, ShellNode]
) -> None:
    person = Person(*words(tmp_path, nodes))
    person.answer("user that the nodes accept [ops]:", "me")
    person.answer("key that they accept [~/.ssh/id_", str(key_file(tmp_path)))
    for name, node in nodes.items():
        person.answer(f"are these the host keys of {name}, as its console shows them? [y/N]:", "y")
        assert f"{name}: {node.host_key.kind} {node.host_key.fingerprint}" in person.shown
    person.answer("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "n")
    assert person.finish() == 0, person.shown
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
    person.answer("is office-mac (127.0.89.9) a node of this rack?", "n")
    person.answer("is spark1 (127.0.89.11) a node of this rack?", "y" if right else "n")
    if not right:
        person.answer("the first node, as ADDRESS or NAME=ADDRESS:", "spark1=ten")
        person.answer("the first node, as ADDRESS or NAME=ADDRESS:", "127.0.89.11")
        assert "ten is not an IPv4 address" in person.shown
    person.answer("another node, as ADDRESS or NAME=ADDRESS; - for none [-]:", "")
    person.answer("are these the host keys of spark1", "y")
    person.answer("Also hold the driver", "")
    assert person.finish() == 0, person.shown
    assert list(load(out).nodes) == ["spark1"]
    assert (out.parent / "known_hosts").exists()


def test_a_no_to_a_host_key_ends_it_with_nothing_written(tmp_path: Path, nodes: dict[str, ShellNode]) -> None:
    person = Person(*words(tmp_path, nodes), "--user", "me", "--key", str(key_file(tmp_path)))
    person.answer("are these the host keys of", "n")
    assert person.finish() == 1
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
    person.answer("Also hold the driver", "n")
    person.answer("write over", "n")
    assert person.finish() == 1
    assert "-rack: mine" in person.shown
    assert (tmp_path / "rack.yaml").read_text() == "rack: mine\n"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """An empty folder, and the home of an operator with a key."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    key_file(tmp_path).rename(tmp_path / "home/.ssh/id_ed25519")
    (tmp_path / "desk").mkdir()
    return tmp_path / "desk"


def first_evening(desk: Path, nodes: dict[str, ShellNode]) -> Person:
    """`sparkrack init` in an empty folder between two Sparks, to the last host key, with Enter where it does."""
    port = str(next(iter(nodes.values())).port)
    program = (sys.executable, "-c", TWO_SPARKS)
    home = str(desk.parent / "home")
    # Without SPARKRACK_WITHIN of the tests it prints its next step.
    environment = {"HOME": home, "SPARKRACK_WITHIN": ""}
    person = Person("init", "--ssh-port", port, program=program, folder=desk, columns=80, **environment)
    person.answer("is spark1 (127.0.89.11) a node of this rack? [Y/n]:", "")
    person.answer("is spark2 (127.0.89.12) a node of this rack? [Y/n]:", "")
    person.answer("another node, as ADDRESS or NAME=ADDRESS; - for none [-]:", "")
    person.answer("address of the switch; - for none [-]:", "")
    person.answer("user that the nodes accept [ops]:", "")
    person.answer("key that they accept [~/.ssh/id_ed25519]:", "")
    person.answer("are these the host keys of spark1, as its console shows them? [y/N]:", "y")
    person.answer("are these the host keys of spark2, as its console shows them? [y/N]:", "y")
    return person


def lines_of(desk: Path) -> list[str]:
    return (desk / "rack.yaml").read_text().splitlines()


def shown_screen(person: Person, port: int) -> str:
    """The screen as a terminal of 80 columns has it at the end, with addresses of a rack, and without what the run of a
    test has of its own: host keys and the port of sshd."""
    lines = "\n".join(lines_of_screen(person.shown, 80)) + "\n"
    lines = re.sub(r"\S+ SHA256:\S+", "ssh-ed25519 SHA256:" + "0" * 43, lines)
    return lines.replace("127.0.89.", "10.77.0.").replace(f" --ssh-port {port}", "")


def fits_80_columns(person: Person) -> None:
    """No line is broken by the terminal."""
    wide = [line for line in person.shown.splitlines() if len(line.rstrip()) > 80]
    assert wide == []


def test_two_sparks_and_enter_are_a_rack_of_ten_lines_that_holds_what_was_read(
    desk: Path, nodes: dict[str, ShellNode]
) -> None:
    person = first_evening(desk, nodes)
    person.answer("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "")
    assert person.finish() == 0, person.shown
    assert person.shown.rstrip().endswith("Next, from this file to a verified rack: sparkrack up")
    port = next(iter(nodes.values())).port
    assert lines_of(desk) == [
        "# Written by sparkrack init; yours to edit. sparkrack check judges it without connecting.",
        f"access: {{user: ops, port: {port}}}",
        "nodes: # by rank, the first is the head; port 0 is the cage next to the RJ45",
        "  spark1: {address: 127.0.89.11, vendor: nvidia, ports: {1: spark2/1}}",
        "  spark2: {address: 127.0.89.12, vendor: nvidia}",
        "time: {ntp: [ntp.ubuntu.com]}",
        "driver: {version: 580.159.03, kernel: 6.17.0-1021-nvidia} # held: no update of a node changes them",
        "blackbox: {} # what a node that dies leaves behind",
        "watch: {} # metrics and alerts, kept on a node",
    ]
    rack = load(desk / "rack.yaml")
    assert (rack.rack, rack.topology, rack.access.known_hosts) == ("desk", "direct", desk / "known_hosts")
    fits_80_columns(person)
    check("docs/init.md", "terminal", shown_screen(person, port))


def test_the_cable_between_two_sparks_that_let_no_one_in_yet_is_asked_for(
    desk: Path, nodes: dict[str, ShellNode]
) -> None:
    for node in nodes.values():
        node.sudo = False
    person = first_evening(desk, nodes)
    person.answer(ACCOUNT, "nvidia")
    person.answer(PROMPT, "typed")
    person.answer("port of spark1 that has the cable to spark2; 0 is next to the RJ45 [1]:", "2")
    person.answer("port of spark1 that has the cable to spark2; 0 is next to the RJ45 [1]:", "0")
    person.answer("port of spark2 that has it [1]:", "")
    person.answer("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "n")
    assert person.finish() == 0, person.shown
    assert "2 is not a port of a node; write 0 or 1" in person.shown
    assert "spark1: not read: sshd takes no passwords, only publickey" in person.shown
    assert "  driver    held as it is installed, against updates" in person.shown
    assert "no version is offered: could not be read: spark1, spark2" in person.shown
    assert lines_of(desk)[-2:] == [
        "  spark1: {address: 127.0.89.11, ports: {0: spark2/1}}",
        "  spark2: {address: 127.0.89.12}",
    ]
    assert [str(cable.b) for cable in load(desk / "rack.yaml").cabling.cables] == ["spark2/1"]


PASSWORD = "correct horse 7"
ACCOUNT = "the account that the first-boot wizard made [ops]:"
PROMPT = "password of nvidia there, one for all; Enter: none:"
HELD = "Also hold the driver, set time servers, record a black box and watch? [Y/n]:"


def is_nowhere(secret: str, person: Person, folder: Path) -> None:
    """The secret is neither on the screen nor in a file below the folder."""
    assert secret not in person.shown
    assert [file for file in folder.rglob("*") if file.is_file() and secret in file.read_text(errors="replace")] == []


def test_nodes_from_the_factory_are_read_by_one_password(desk: Path, nodes: dict[str, ShellNode]) -> None:
    for node in nodes.values():
        node.take_password(PASSWORD)
        file = node.folder / "timedatectl-time-servers"
        file.write_text("SystemNTPServers=10.77.0.1\nFallbackNTPServers=ntp.ubuntu.com\n")
    person = first_evening(desk, nodes)
    person.answer(ACCOUNT, "nvidia")
    person.answer(PROMPT, "not it")
    person.answer(PROMPT, PASSWORD)
    person.answer(HELD, "")
    assert person.finish() == 0, person.shown
    assert "spark1: does not take the password of nvidia" in person.shown
    assert "  time      from 10.77.0.1, which spark1, spark2 have" in person.shown
    assert lines_of(desk)[2:] == [
        "nodes: # by rank, the first is the head; port 0 is the cage next to the RJ45",
        "  spark1: {address: 127.0.89.11, vendor: nvidia, ports: {1: spark2/1}}",
        "  spark2: {address: 127.0.89.12, vendor: nvidia}",
        "time: {ntp: [10.77.0.1]}",
        "driver: {version: 580.159.03, kernel: 6.17.0-1021-nvidia} # held: no update of a node changes them",
        "blackbox: {} # what a node that dies leaves behind",
        "watch: {} # metrics and alerts, kept on a node",
    ]
    first, second = nodes.values()
    assert first.tried == [("nvidia", "not it"), ("nvidia", PASSWORD)]
    assert second.tried == [("nvidia", PASSWORD)]
    assert all("ping -q" in node.asked for node in nodes.values())
    is_nowhere(PASSWORD, person, desk)
    assert not any(PASSWORD in command for node in nodes.values() for command in node.commands)
    fits_80_columns(person)


def test_enter_instead_of_a_password_reads_no_node(desk: Path, nodes: dict[str, ShellNode]) -> None:
    for node in nodes.values():
        node.take_password(PASSWORD)
    person = first_evening(desk, nodes)
    person.answer(ACCOUNT, "nvidia")
    person.answer(PROMPT, "")
    person.answer("port of spark1 that has the cable to spark2; 0 is next to the RJ45 [1]:", "")
    person.answer("port of spark2 that has it [1]:", "")
    person.answer("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "")
    assert person.finish() == 0, person.shown
    assert (
        "spark1, spark2: not read: no version of their driver and no time server of theirs is offered" in person.shown
    )
    assert "  time      from ntp.ubuntu.com, the default of DGX OS; no node's was read" in person.shown
    assert [node.tried for node in nodes.values()] == [[], []]


def test_three_passwords_are_typed_at_most(desk: Path, nodes: dict[str, ShellNode]) -> None:
    for node, password in zip(nodes.values(), (PASSWORD, "another"), strict=True):
        node.take_password(password)
    person = first_evening(desk, nodes)
    person.answer(ACCOUNT, "nvidia")
    person.answer(PROMPT, PASSWORD)
    person.answer(PROMPT, "wrong 1")
    person.answer(PROMPT, "wrong 2")
    person.answer("port of spark1 that has the cable to spark2; 0 is next to the RJ45 [1]:", "")
    person.answer("port of spark2 that has it [1]:", "")
    person.answer("Also hold the driver, set time servers, record a black box and watch? [Y/n]:", "n")
    assert person.finish() == 0, person.shown
    assert "spark2: not read: 3 passwords were wrong there; no more are tried" in person.shown
    assert "no version is offered: could not be read: spark2" in person.shown
    _, second = nodes.values()
    assert [password for _, password in second.tried] == [PASSWORD, "wrong 1", "wrong 2"]


def test_a_node_that_takes_keys_only_is_not_asked_for_a_password(desk: Path, nodes: dict[str, ShellNode]) -> None:
    for node in nodes.values():
        node.keys_accepted = False
    person = first_evening(desk, nodes)
    person.answer("port of spark1 that has the cable to spark2; 0 is next to the RJ45 [1]:", "")
    person.answer("port of spark2 that has it [1]:", "")
    person.answer("Also hold the driver", "n")
    assert person.finish() == 0, person.shown
    assert "password" not in person.shown
