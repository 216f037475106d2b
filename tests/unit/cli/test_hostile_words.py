"""A machine at a node's address that is not an ssh server, and says something else before any host key is checked."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.cli.cli_fixtures import hangs
from tests.unit.cli.runs import Ended, command
from tests.unit.engine.ssh_node import SshNode, rack_file

COMMANDS = {
    "plan": ("sparkrack", "plan", "--limit", "spark1"),
    "plan --quiet": ("sparkrack", "plan", "--quiet", "--limit", "spark1"),
    "apply": ("sparkrack", "apply", "-y", "--limit", "spark1"),
    "drift": ("sparkrack", "drift", "--no-history", "--limit", "spark1"),
    "drift --markdown": ("sparkrack", "drift", "--no-history", "--markdown", "--limit", "spark1"),
    "pyinfra": ("pyinfra", "inventory.py", "deploy.py", "--dry", "--limit", "spark1"),
    "pyinfra --debug-all": ("pyinfra", "inventory.py", "deploy.py", "--dry", "--limit", "spark1", "--debug-all"),
}


class Shouting(SshNode):
    """Says so many lines that a client believes none is the version."""

    def welcomes(self, connection: socket.socket) -> bool:
        connection.sendall("\x1b[2J\x9b2J\u202ehello\r\n".encode() * 120)
        connection.close()
        return False


def run(name: str, folder: Path) -> Ended:
    server = Shouting(hangs)
    try:
        rack = rack_file(folder, server)
        return command(*COMMANDS[name], RACK=str(rack), XDG_STATE_HOME=str(folder / "state"))
    finally:
        server.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_control_sign_of_it_reaches_the_terminal(name: str, tmp_path: Path) -> None:
    ended = run(name, tmp_path)
    assert ended.code == 1
    assert "hello" in ended.text
    assert not [sign for sign in ("\x1b[2J", "\x9b", "\u202e") if sign in ended.text], ended.text
    assert "\\x1b[2J\\x9b2J\\u202ehello" in ended.text
