"""Nodes that refuse the key and are read by a password, over real logins to sshd stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from sparkrack.discovery.password_reading import RefusingNode, open_password_shells
from tests.unit.discovery.shellnode import ShellNode

ACCEPTED, OTHER = "correct horse 7", "battery staple 8"


class TypedScreen:
    """A terminal at which these passwords are typed, one after the other."""

    def __init__(self, *typed: str) -> None:
        self.typed, self.shown = list(typed), ""

    def ask(self, question: str, default: str) -> str:
        self.shown += f"{question}\n"
        return default

    def warn(self, text: str) -> None:
        self.shown += f"{text}\n"

    def hidden_prompt(self, question: str, *, skippable: bool = False) -> SecretStr:
        assert skippable
        self.shown += f"{question}\n"
        return SecretStr(self.typed.pop(0))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, ShellNode]]:
    """Three nodes at one port; the second one has another password."""
    found: dict[str, ShellNode] = {}
    for number in (1, 2, 3):
        port = found["spark1"].port if found else 0
        made = ShellNode(tmp_path / f"spark{number}", f"127.0.89.{20 + number}", port)
        made.take_password(OTHER if number == 2 else ACCEPTED)
        found[f"spark{number}"] = made
    yield found
    for node in found.values():
        node.close()


@pytest.mark.parametrize(
    ("typed", "read", "tried"),
    [
        ((ACCEPTED, ""), ["spark1", "spark3"], [[ACCEPTED], [ACCEPTED], [ACCEPTED]]),
        ((ACCEPTED, OTHER, ""), ["spark1", "spark2"], [[ACCEPTED], [ACCEPTED, OTHER], [OTHER]]),
        (("",), [], [[], [], []]),
    ],
)
def test_enter_at_one_node_leaves_the_others_to_the_password_that_was_accepted(
    nodes: dict[str, ShellNode], typed: tuple[str, ...], read: list[str], tried: list[list[str]]
) -> None:
    screen = TypedScreen(*typed)
    refusing = {name: RefusingNode(f"127.0.89.2{name[-1]}", (node.host_key,)) for name, node in nodes.items()}
    with open_password_shells(screen, refusing, nodes["spark1"].port, "nvidia") as reading:  # type: ignore[arg-type]
        assert list(reading.shells) == read
    assert [[password for _, password in node.tried] for node in nodes.values()] == tried
    assert screen.typed == [], "each prompt was needed, and none more"
    unread = ", ".join(name for name in nodes if name not in read)
    assert f"{unread}: not read: no version of their driver" in screen.shown
