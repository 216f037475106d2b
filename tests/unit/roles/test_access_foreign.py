"""Keys and ssh settings of others: what the probe finds, and what is reported of it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from core.ops import host_facts
from core.util.event import EventKind
from roles.access import facts, foreign_access
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import run, stand_in

RACK = loaded(SWITCH)
PROBE = host_facts._registered["access"].commands[facts.FOREIGN]
ENTRY = "/home/ops/.ssh/authorized_keys"
BLOB = base64.b64encode(b"\0\0\0\x0bssh-ed25519 someone").decode()
KEY = f"ssh-ed25519 {BLOB}"
PRINT = "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(BLOB)).digest()).decode().rstrip("=")


def found(text: str, kind: str = "keys", path: str = ENTRY, operator: str | None = None, shown: str = "") -> list[str]:
    listing = f"{kind} {path} {base64.b64encode(text.encode()).decode()}\n"
    events = foreign_access.unmanaged(RACK, ENTRY, operator, listing, shown)
    assert {event.kind for event in events} <= {EventKind.UNMANAGED}
    return [event.message for event in events]


def test_a_key_of_others_is_shown_by_its_fingerprint() -> None:
    reported = found(f"# none\n\n{KEY} bob@laptop\n")
    assert reported == [f"{ENTRY}:3: accepts {PRINT} (bob@laptop)"]
    assert BLOB not in str(reported)


def test_our_lines_and_the_operator_are_not_listed_in_our_file_only() -> None:
    ours = f'from="10.0.0.1" {KEY} sparkrack:two:spark2\n'
    assert found(ours) == []
    assert found(f"{KEY} me\n", operator=f"{KEY} other comment") == []
    assert len(found(ours, path="/root/.ssh/authorized_keys")) == 1
    assert len(found(f"{KEY} sparkrack:three:spark1\n")) == 1, "another rack"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f'command="echo ssh-rsa {BLOB}x a \\" b" {KEY} x', f"accepts {PRINT} (x)"),
        (f"cert-authority {KEY}", f"accepts certificates of {PRINT} (no comment)"),
        (f"{KEY} a\x1b[2Jb", "a\\x1b[2Jb"),
        (f"{KEY} {'x' * 500}", f"({'x' * 60})"),
        ("no key at all: hunter2", "a line that is not a key of a known form"),
    ],
)
def test_options_and_hostile_comments(line: str, shown: str) -> None:
    (reported,) = found(f"{line}\n")
    assert shown in reported
    assert reported.isprintable()
    assert "hunter2" not in reported
    assert "command" not in reported


@pytest.mark.parametrize("line", ["Host *", "host = *", "  Host a *", "Match all"])
def test_ssh_options_for_every_host(line: str) -> None:
    reported = found(f"Host github.com\n  User git\n{line}\n  ForwardAgent yes\n", "config", "/home/ops/.ssh/config")
    assert reported == ["/home/ops/.ssh/config:3: these ssh options apply to logins to the nodes as well"]


def test_settings_of_sshd() -> None:
    shown = "authorizedkeyscommand /usr/bin/sss_ssh_authorizedkeys\ntrustedusercakeys none\n"
    assert found("", shown=shown) == ["sshd: AuthorizedKeysCommand: /usr/bin/sss_ssh_authorizedkeys"]


@pytest.mark.parametrize("listing", ["what /a AAAA\n", "keys \n", "keys /a $$$\n"])
def test_another_answer_is_an_error(listing: str) -> None:
    with pytest.raises(ValueError, match="access-foreign"):
        foreign_access.unmanaged(RACK, ENTRY, None, listing, "")


def test_the_probe_reads_every_place_of_sshd(tmp_path: Path) -> None:
    homes = {name: f"echo {name}:x:0:0::{tmp_path}/{name}:/bin/sh" for name in ("root", "ops")}
    script = f"case $3 in root) {homes['root']} ;; *) {homes['ops']} ;; esac"
    stand_in(tmp_path, "getent", script)
    stand_in(
        tmp_path, "sshd", f"echo authorizedkeysfile .ssh/authorized_keys %h/.ssh/more {tmp_path}/keys/%u /x/%i none"
    )
    for path in (
        "ops/.ssh/authorized_keys",
        "ops/.ssh/more",
        "ops/.ssh/config",
        "root/.ssh/authorized_keys",
        "keys/ops",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    done = run(PROBE, tmp_path, {"SUDO_USER": "ops"})
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.replace(f"{tmp_path}/", "").splitlines()]
    assert [line[:2] for line in lines] == [
        ["keys", "ops/.ssh/authorized_keys"],
        ["keys", "ops/.ssh/more"],
        ["keys", "keys/ops"],
        ["unread", "/x/%i"],
        ["config", "ops/.ssh/config"],
        ["keys", "root/.ssh/authorized_keys"],
        ["unread", "/x/%i"],
    ]
    assert base64.b64decode(lines[2][2]) == b"keys/ops"
    stand_in(tmp_path, "sshd", "exit 1")
    assert run(PROBE, tmp_path, {"SUDO_USER": "ops"}).returncode == 9
