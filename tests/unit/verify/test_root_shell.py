"""The one root shell behind all checks of a node, with a `ssh` that is a shell of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.ssh.root_shell import RootShell, UnreachableError

SSH = """\
#!/bin/sh
echo "$*" >> "$LOG"
exec sh
"""

SPLIT = """\
#!/bin/sh
sh | python3 -c '
import os, time
while part := os.read(0, 1 << 16):
    os.write(1, part[:-1])
    time.sleep(0.1)
    os.write(1, part[-1:])
'
"""
"""Its output arrives without its last character first."""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RootShell]:
    give(tmp_path, monkeypatch, SSH)
    made = RootShell("spark1", tmp_path / "config", seconds=5)
    yield made
    made.close()


def give(folder: Path, monkeypatch: pytest.MonkeyPatch, ssh: str) -> None:
    program = folder / "ssh"
    program.write_text(ssh)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(folder / "log"))


def test_what_a_command_says_comes_back_apart(shell: RootShell) -> None:
    done = shell.run("printf out; printf err >&2; exit 7")
    assert (done.rc, done.stdout, done.stderr) == (7, "out", "err")


def test_an_answer_whose_last_character_comes_alone_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(tmp_path, monkeypatch, SPLIT)
    made = RootShell("spark1", tmp_path / "config", seconds=5)
    try:
        assert made.run("echo out; exit 7").rc == 7
    finally:
        made.close()


def test_one_login_serves_all(shell: RootShell, tmp_path: Path) -> None:
    for number in range(3):
        assert shell.run("echo %s", f"{number} $(x) 'y'").stdout == f"{number} $(x) 'y'\n"
    assert (tmp_path / "log").read_text() == f"-F {tmp_path / 'config'} spark1 sudo -n sh\n"


def test_nothing_of_a_command_is_left_for_the_next(shell: RootShell) -> None:
    shell.run("cd /; export LEFT=1; set -e; umask 0; exit 3")
    assert shell.run('echo "${LEFT:-nothing} $(umask)"').stdout == f"nothing {os.umask(0o22):04o}\n".replace(
        "0000", "0022"
    )
    assert shell.run("cat").stdout == ""


def test_a_syntax_error_is_the_commands_own(shell: RootShell) -> None:
    assert shell.run("if then '").rc != 0
    assert shell.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("text", ["", "\n", "a\n\nb", "é\u2028x\n", "x" * 300_000])
def test_any_output(shell: RootShell, text: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(text)
    done = shell.run(f"cat {tmp_path / 'text'}; cat {tmp_path / 'text'} >&2")
    assert (done.stdout, done.stderr) == (text, text)


def test_what_stays_behind_does_not_hold_up(shell: RootShell) -> None:
    assert shell.run("sleep 3 & echo done").stdout == "done\n"


def test_no_answer_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(tmp_path, monkeypatch, SSH)
    shell = RootShell("spark1", tmp_path / "config", seconds=0.3)
    with pytest.raises(UnreachableError, match=r"spark1: cannot be asked: no answer within 0\.3 s"):
        shell.run("sleep 5")


@pytest.mark.parametrize(
    ("ssh", "reported"),
    [
        ("#!/bin/sh\necho 'ops@10.77.0.11: Permission denied (publickey).' >&2\nexit 255\n", "Permission denied"),
        ("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n", "sudo: a password is required"),
        ("#!/bin/sh\nexit 255\n", "the connection ended"),
        ("#!/bin/sh\nread line\nexit 1\n", "the connection ended"),
    ],
)
def test_a_node_that_gives_no_shell(ssh: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(tmp_path, monkeypatch, ssh)
    with pytest.raises(UnreachableError, match="spark1: ") as raised:
        RootShell("spark1", tmp_path / "config", seconds=5).run("true")
    assert reported in str(raised.value)


def test_a_shell_that_has_ended_is_opened_again(shell: RootShell, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        shell.run("kill -9 $PPID")
    assert shell.run("echo again").stdout == "again\n"


@pytest.mark.parametrize("greeting", ["echo Welcome; echo Welcome >&2", "printf 'no end of line'; printf no >&2"])
def test_what_a_login_shell_says_to_everybody_is_no_answer(
    greeting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(tmp_path, monkeypatch, f"#!/bin/sh\n{greeting}\nexec sh\n")
    shell = RootShell("spark1", tmp_path / "config", seconds=5)
    for _ in range(2):
        done = shell.run("printf out; printf err >&2")
        assert (done.rc, done.stdout, done.stderr) == (0, "out", "err")
    shell.close()


def test_a_node_that_says_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(tmp_path, monkeypatch, "#!/bin/sh\nexec head -c 20000000 /dev/zero\n")
    with pytest.raises(UnreachableError, match="its output exceeds 8 MiB"):
        RootShell("spark1", tmp_path / "config", seconds=20).run("true")


def test_no_tool_speaks_another_language(shell: RootShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert shell.run("echo $LC_ALL").stdout == "C\n"
