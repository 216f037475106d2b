"""The real `sparkrack` command before a person: colours, and no question for a password."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
from pathlib import Path

from tests.unit.cli.cli_fixtures import ESCAPE, PLAN, SPARKRACK, SWAPS, node, saying, settings
from tests.unit.engine.ssh_node import Speak, SshNode, rack_file


def on_terminal(folder: Path, speak: Speak, **env: str) -> tuple[int, str]:
    """The exit code, and what a person sees, who types nothing."""
    there = SshNode(speak)
    ours, its = pty.openpty()
    try:
        rack = rack_file(folder, there)
        process = subprocess.Popen(
            [SPARKRACK, *PLAN],
            env=settings(folder, RACK=str(rack), **env),
            stdin=its,
            stdout=its,
            stderr=its,
            preexec_fn=_take_terminal,
        )
        os.close(its)
        seen = b""
        while part := _read_screen(ours):
            seen += part
        return process.wait(60), seen.decode()
    finally:
        os.close(ours)
        there.close()


def _take_terminal() -> None:
    """getpass asks at the terminal of the process, whatever its streams are."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_screen(screen: int) -> bytes:
    ready, _, _ = select.select([screen], [], [], 60)
    assert ready, "it waits for input"
    try:
        return os.read(screen, 4096)
    except OSError:  # Linux says so when the last process has closed the terminal
        return b""


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
