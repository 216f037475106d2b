"""What plain pyinfra prints of a machine's words: its own styling, and nothing that moves a cursor or is a file."""

from __future__ import annotations

import base64
import logging
from typing import Any

import click
import pytest
from pyinfra import logger
from pyinfra.api import output
from pyinfra.connectors import ssh
from pyinfra.connectors import util as connecting

from core.ops.terminal import cleaned, guard

HOSTILE = {
    "ESC": ("\x1b]0;PWNED\x07x", "\\x1b]0;PWNED\\x07x"),
    "clear": ("\x1b[2Jhello", "\\x1b[2Jhello"),
    "conceal": ("\x1b[8mhidden", "\\x1b[8mhidden"),
    "C1": ("\x9b2Jhello", "\\x9b2Jhello"),
    "bidi": ("user\u202egnp.exe", "user\\u202egnp.exe"),
    "carriage return": ("wrong\rright", "wrong\\rright"),
    "surrogate": ("x\udce9", "x\\udce9"),
}
LONG = base64.b64encode(b'{"log-driver": "json-file"}').decode()


@pytest.mark.parametrize("name", HOSTILE)
def test_control_signs_are_written_out(name: str) -> None:
    reported, shown = HOSTILE[name]
    prefix = f"{click.style('')}[{click.style('spark1', bold=True)}] "
    assert cleaned(f"{prefix}{click.style(reported, 'red')}") == f"{prefix}{click.style(shown, 'red')}"


def test_lines_and_tabs_stay() -> None:
    assert cleaned("a\tb\nc") == "a\tb\nc"


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        (f"/etc/docker/daemon.json {LONG} 0", "/etc/docker/daemon.json (36 characters of base64) 0"),
        (f"printf %s '{LONG}' | base64 -d", "printf %s '(36 characters of base64)' | base64 -d"),
        ("/usr/lib/systemd/system/dockerservice/0123 0", "/usr/lib/systemd/system/dockerservice/0123 0"),
        ("a" * 64, "a" * 64),
        ("sha256:" + "0f" * 32, "sha256:" + "0f" * 32),
    ],
)
def test_the_contents_of_files_are_only_counted(reported: str, shown: str) -> None:
    assert cleaned(reported) == shown


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """pyinfra as its own command sets it up, guarded; the lines that it echoes."""
    echoed: list[str] = []
    monkeypatch.setattr(connecting, "getpass", input)
    monkeypatch.setattr(ssh, "make_unix_command_for_host", lambda *_, **__: "made")
    monkeypatch.setattr(output, "_echo", lambda message=None, **_: echoed.append(message))
    monkeypatch.setattr(logger, "filters", [])
    guard()
    return echoed


def test_what_pyinfra_echoes_and_logs_is_cleaned(guarded: list[str]) -> None:
    guard()  # a second time changes nothing
    output.echo("\x1b[2J", err=True)
    assert guarded == ["\\x1b[2J"]
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, "%s said %s", ("spark1", "\x9b"), None)
    logger.handle(record)
    assert record.getMessage() == "spark1 said \\x9b"


def test_no_password_of_sudo_is_asked_for_or_sent(guarded: list[str]) -> None:
    with pytest.raises(PermissionError, match="sudo asks for a password; `sparkrack bootstrap nodes NAME` sets"):
        connecting.getpass("[spark1] sudo password: ")  # type: ignore[attr-defined]
    make: Any = ssh.make_unix_command_for_host  # type: ignore[attr-defined]
    assert make(None, None, "id", _sudo=True) == "made"
    with pytest.raises(PermissionError, match="a password of sudo would stand in the arguments of a process"):
        make(None, None, "id", _sudo=True, _sudo_password="secret")
