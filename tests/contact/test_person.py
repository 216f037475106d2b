"""A person at the terminal: what is asked, in which order, and how often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contact.conftest import Rack
from tests.contact.nodes import PASSWORD, Operator, Seed
from tests.contact.test_refused import attempts
from tests.generated import REPOSITORY
from tests.own_terminal import Terminal

QUESTION = "its host key, as its console shows it?"


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def opened(operator: Operator, terminals: list[Terminal], *words: str) -> Terminal:
    line = operator.command("nodes", "--timeout", "60", *words)
    terminals.append(Terminal(line, operator.environment(), REPOSITORY))
    return terminals[-1]


def test_keys_of_all_nodes_are_confirmed_first_and_one_password_does_for_all(
    rack: Rack, terminals: list[Terminal]
) -> None:
    operator = rack(Seed(), Seed(machine_id="f" * 32))
    terminal = opened(operator, terminals)
    terminal.answer(f"spark1: is ED25519 {operator.nodes['spark1'].keys['ssh-ed25519'].fingerprint} {QUESTION}", "y")
    terminal.answer(f"spark2: is ED25519 {operator.nodes['spark2'].keys['ssh-ed25519'].fingerprint} {QUESTION}", "y")
    terminal.answer("the account that the first-boot wizard made [ops]:", "nvidia")
    terminal.answer("spark1: password of nvidia:", PASSWORD)
    assert terminal.finish() == 0, terminal.shown
    assert "spark2: password of" not in terminal.shown
    assert PASSWORD not in terminal.shown
    assert terminal.shown.index("spark2: shows ED25519") < terminal.shown.index("spark1: is ED25519")


def test_a_no_sends_nothing(rack: Rack, terminals: list[Terminal]) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    before = node.state()
    terminal = opened(operator, terminals, "--as", "nvidia")
    terminal.answer(QUESTION, "n")
    assert terminal.finish() == 1
    assert "spark1: its host key was not confirmed; nothing was sent" in terminal.shown
    assert attempts(node) == 0
    assert node.state() == before
    assert not operator.known_hosts.exists()


def test_three_wrong_passwords_and_no_more(rack: Rack, terminals: list[Terminal]) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    before = node.state()
    terminal = opened(operator, terminals, "--as", "nvidia")
    terminal.answer(QUESTION, "y")
    for guess in ("one", "two", "three"):
        terminal.answer("spark1: password of nvidia:", guess)
    assert terminal.finish() == 1
    assert "3 passwords were wrong there; no more are tried, so that no account is locked" in terminal.shown
    assert attempts(node) == 3
    assert node.state() == before


def test_a_wrong_password_is_asked_for_again(rack: Rack, terminals: list[Terminal]) -> None:
    operator = rack()
    terminal = opened(operator, terminals, "--as", "nvidia", "--dry")
    terminal.answer(QUESTION, "y")
    terminal.answer("spark1: password of nvidia:", "wrong")
    terminal.answer("spark1: password of nvidia:", PASSWORD)
    assert terminal.finish() == 0, terminal.shown
    assert "nothing was written" in terminal.shown
    assert not operator.known_hosts.exists()
