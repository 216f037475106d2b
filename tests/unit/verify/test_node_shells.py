"""Root shells on the nodes of a rack: one way to open them, and none is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ssh import node_shells
from core.ssh.node_shells import open_shells, open_shells_at
from tests.unit.model.racks import SWITCH, loaded

RACK = loaded(SWITCH)


class Shell:
    made: list[Shell]

    def __init__(self, node: str, config: Path, seconds: float) -> None:
        self.node, self.config, self.seconds, self.text, self.open = node, config, seconds, config.read_text(), True
        self.made.append(self)

    def close(self) -> None:
        self.open = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Shell]:
    Shell.made = []
    monkeypatch.setattr(node_shells, "RootShell", Shell)
    return Shell.made


def test_they_are_closed_and_the_configuration_is_gone_after_a_fault(made: list[Shell]) -> None:
    with pytest.raises(ZeroDivisionError), open_shells(RACK, ["spark1", "spark2"], 7) as shells:  # noqa: PT012
        assert list(shells) == ["spark1", "spark2"]
        assert all(shell.open and shell.seconds == 7 for shell in made)
        assert made[0].config.parent.stat().st_mode & 0o077 == 0
        raise ZeroDivisionError
    assert [shell.open for shell in made] == [False, False]
    assert not made[0].config.parent.exists()


def test_a_shorter_time_to_connect_comes_first(made: list[Shell]) -> None:
    """OpenSSH takes the first value."""
    with open_shells(RACK, ["spark1"], 7, connect_timeout=3):
        assert made[0].text.startswith("ConnectTimeout 3\n")
    with open_shells(RACK, ["spark1"], 7):
        assert not made[1].text.startswith("ConnectTimeout")


def test_machines_without_a_rack_file_go_by_their_address(made: list[Shell]) -> None:
    with open_shells_at(RACK.access, {"new": "10.0.0.9"}, 7) as shells:
        assert list(shells) == ["new"]
    assert "Host new\n  HostName 10.0.0.9\n" in made[0].text
