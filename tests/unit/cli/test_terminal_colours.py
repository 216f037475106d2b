"""The real `sparkrack` command before a person: colours, and no question for a password."""

from __future__ import annotations

from pathlib import Path

from tests.own_terminal import Terminal
from tests.unit.cli.cli_fixtures import ESCAPE, PLAN, SPARKRACK, SWAPS, node, saying, settings
from tests.unit.engine.ssh_node import Speak, SshNode, rack_file


def on_terminal(folder: Path, speak: Speak, **env: str) -> tuple[int, str]:
    """The exit code, and what a person sees, who types nothing."""
    there = SshNode(speak)
    rack = rack_file(folder, there)
    try:
        with Terminal([SPARKRACK, *PLAN], settings(folder, RACK=str(rack), **env)) as terminal:
            return terminal.finish(), terminal.shown
    finally:
        there.close()


def test_a_person_sees_colours(tmp_path: Path) -> None:
    code, seen = on_terminal(tmp_path, node(**SWAPS))
    assert code == 2
    assert ESCAPE in seen


def test_but_not_with_no_color(tmp_path: Path) -> None:
    code, seen = on_terminal(tmp_path, node(**SWAPS), NO_COLOR="1")
    assert code == 2
    assert "release zram0" in seen
    assert ESCAPE not in seen


def test_no_one_is_asked_for_a_password(tmp_path: Path) -> None:
    """pyinfra would: the test would not end."""
    code, seen = on_terminal(tmp_path, saying(1, "sudo: a password is required"))
    assert code == 1
    assert "sudo password:" not in seen
    assert "`sparkrack bootstrap nodes NAME` sets passwordless sudo" in seen
