"""The debug log of a run, and -v: what each host was asked, without secrets."""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import paramiko
import pytest
from click.testing import CliRunner

from core.model import SecretRef
from core.ops.run_lock import GONE
from core.ssh.host_keys import HostKey
from core.util import debug_log
from core.util.command_error import CommandError
from core.util.debug_log import LOG, RunLog, recording, timed
from sparkrack.cli.main import called_verb, sparkrack
from sparkrack.engine import run_log as run_log_module
from sparkrack.engine.journal import MAX_JOURNALS, RunJournal, log_path
from sparkrack.engine.run_log import run_log
from sparkrack.node_login.password_shell import open_password_shell
from tests.unit.cli.runs import Ended, command
from tests.unit.cli.test_runs import ENDED, journal
from tests.unit.engine.fake_rack import usual
from tests.unit.engine.ssh_node import ADDRESS, SshNode, _Server, _tell_of_replies, answering, rack_file
from tests.unit.roles.cases import NOW

SHARE = "canary-of-the-share-Xq7Zp2Lm9V"
TOKEN = "hf_canaryOfTheHub123"
PASSWORD = "canary-of-the-account"
APPLY = ("apply", "-y", "--limit", "spark1", "--only", "memory")
FSTAB = f"//nas/models /models cifs username=ann,password={SHARE} 0 0\n/swap.img none swap sw 0 0\n"

SHORT = "A=canary-9"
CONTENT = {base64.b64encode(SHORT.encode()).decode()[:12]} | {
    base64.b64encode(FSTAB.encode()).decode()[at : at + 12] for at in range(0, 100, 4)
}
"""Parts of the files in base64, as probes read it."""


def speak(reported: str) -> tuple[int, str, str] | None:
    """A node that is as the role memory expects, but for its swap; it grants the lock."""
    if "echo complete" in reported:
        now = dict(usual("memory"))["preflight-now"].replace(str(int(NOW)), str(int(time.time())))
        return answering(dict(usual("memory")) | {"preflight-now": now, "/etc/fstab": FSTAB, "/etc/nccl.conf": SHORT})(
            reported
        )
    if "%d" in reported:  # the lock
        return 0, f"\n{GONE if 'echo; echo' in reported else 0}\n", ""
    return 0, f"a \x1b[31mwarning\nexport HF_TOKEN={TOKEN}\n", ""


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A folder with a rack, and how `sparkrack -v apply` ended there."""
    folder = tmp_path_factory.mktemp("debug")
    there = SshNode(speak)
    rack = rack_file(folder, there)
    ended = command("sparkrack", "-v", *APPLY, RACK=str(rack), XDG_STATE_HOME=str(folder / "state"))
    there.close()
    assert ended.code == 0, ended.text
    return folder, ended


def log_of(folder: Path) -> Path:
    (path,) = (folder / "state").rglob("*.log")
    return path


def test_the_log_lies_beside_its_journal_for_its_owner_only(applied: tuple[Path, Ended]) -> None:
    path = log_of(applied[0])
    assert path.with_suffix(".ndjson").is_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_log_has_versions_connection_and_each_command(applied: tuple[Path, Ended]) -> None:
    text = log_of(applied[0]).read_text()
    assert "sparkrack 0." in text
    assert "pyinfra 3." in text
    assert "-v apply -y --limit spark1 --only memory" in text
    assert f"spark1: connect by ssh to {ADDRESS} as ops" in text
    assert text.count("ssh: probe of ") >= 3
    (write,) = [line for line in text.splitlines() if "mv -fT" in line and line.startswith("    ")]
    assert "base64 -d" in write
    assert "characters of base64)" in write
    assert "/etc/fstab" in write
    assert "spark1: memory: Turn swap off, now and after a reboot: changed, " in text
    assert "exit 0, 0." in text
    assert "    export HF_TOKEN=***" in text
    assert "\x1b" not in text


def test_no_secret_of_a_node_is_in_the_log_or_printed(applied: tuple[Path, Ended]) -> None:
    for text in (log_of(applied[0]).read_text(), applied[1].text):
        assert SHARE not in text
        assert TOKEN not in text
        assert not [part for part in CONTENT if part in text]


def test_verbose_prints_what_is_asked_to_stderr_and_how_long_it_took(applied: tuple[Path, Ended]) -> None:
    lines = applied[1].stderr.splitlines()
    assert any(f"spark1: connect by ssh to {ADDRESS} as ops: answered, 0." in line for line in lines)
    assert any("spark1: ssh: probe of" in line and line.endswith(" s") for line in lines)
    assert all(len(line) < 400 for line in lines)
    assert "probe of" not in applied[1].stdout


def test_runs_names_the_log_and_prints_it(applied: tuple[Path, Ended]) -> None:
    folder, path = applied[0], log_of(applied[0])
    where: dict[str, Any] = {"RACK": str(folder / "rack.yaml"), "XDG_STATE_HOME": str(folder / "state")}
    shown = command("sparkrack", "runs", path.stem, **where)
    assert shown.stdout.splitlines()[-1] == f"log: {path}"
    assert json.loads(command("sparkrack", "runs", path.stem, "--json", **where).stdout)["log"] == str(path)
    printed = command("sparkrack", "runs", path.stem, "--log", **where)
    assert (printed.code, printed.stdout) == (0, path.read_text())


def test_verbose_after_the_verb_and_nothing_without_it(tmp_path: Path) -> None:
    there = SshNode(speak)
    rack = rack_file(tmp_path, there)
    where: dict[str, Any] = {"RACK": str(rack), "XDG_STATE_HOME": str(tmp_path / "state")}
    after = command("sparkrack", "plan", "--limit", "spark1", "--only", "memory", "-v", **where)
    without = command("sparkrack", "plan", "--limit", "spark1", "--only", "memory", **where)
    there.close()
    assert (after.code, without.code) == (2, 2), after.text + without.text
    assert "spark1: connect by ssh" in after.stderr
    assert without.stderr == ""
    assert after.stdout == without.stdout
    assert not list(tmp_path.rglob("*.log")), "a plan keeps no log"


@pytest.mark.parametrize(
    ("words", "verb"), [(["-v", "plan", "-v"], "plan"), (["drift"], "drift"), ([], ""), (["--verbose"], "")]
)
def test_the_verb_is_found_behind_options(words: list[str], verb: str) -> None:
    assert called_verb(words) == verb


def test_a_run_without_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RACK", "tests/cases/racks/valid/switch.yaml")
    name = "two"
    journal(tmp_path / "sparkrack" / name / "runs", ENDED).close()
    done = CliRunner().invoke(sparkrack, ["runs", ENDED])
    assert done.output.splitlines()[-1] == "log: none", done.output
    done = CliRunner().invoke(sparkrack, ["runs", ENDED, "--log"])
    assert (done.exit_code, done.output) == (1, f"Error: {ENDED}: no debug log of this run is kept\n")
    for words in (["runs", "--log"], ["runs", ENDED, "--log", "--json"]):
        assert "--log is about one run" in CliRunner().invoke(sparkrack, words).output


def test_a_journal_takes_its_log_with_it(tmp_path: Path) -> None:
    for number in range(MAX_JOURNALS):
        (tmp_path / f"20260101T{number:06}-aa.ndjson").touch()
    first, second = (log_path(tmp_path / f"20260101T{number:06}-aa.ndjson") for number in (0, 1))
    first.touch()
    second.touch()
    RunJournal(tmp_path, "20270101T000000-aa").close()
    assert (first.exists(), second.exists()) == (False, True)


def test_the_number_of_logs_is_bounded(tmp_path: Path) -> None:
    for number in range(debug_log.MAX_LOGS + 3):
        (tmp_path / f"20260101T{number:06}-aa.log").touch()
    with recording() as log:
        log.keep(tmp_path / "20270101T000000-aa.log")
    assert len(list(tmp_path.glob("*.log"))) == debug_log.MAX_LOGS
    assert (tmp_path / "20270101T000000-aa.log").exists()


def test_the_size_of_a_log_is_bounded_and_errors_still_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_log, "MAX_BYTES", 2000)
    monkeypatch.setattr(debug_log, "MAX_ERROR_BYTES", 1000)
    path = tmp_path / "a.log"
    with recording() as log:
        log.keep(path)
        for number in range(100):
            LOG.info("line %d", number)
        LOG.error("the end")
        for number in range(100):
            LOG.error("error %d", number)
    lines = path.read_text().splitlines()
    assert path.stat().st_size <= 3200
    assert sum("the log is full at" in line for line in lines) == 1
    assert any(line.endswith("ERROR the end") for line in lines)


def test_a_command_and_its_output_are_cut(tmp_path: Path) -> None:
    with recording() as log:
        log.keep(tmp_path / "a.log")
        with timed("spark1", "ssh: " + "x y " * 10_000) as exchange:
            exchange.output = "z " * 10_000
    text = (tmp_path / "a.log").read_text()
    assert len(text) < 10_000
    assert text.count("characters left out") == 3


def test_the_versions_are_those_of_the_packages_that_a_run_rests_on() -> None:
    named = [part.rpartition(" ") for part in run_log_module.versions().split(", ")[:8]]
    assert [name for name, _, _ in named] == [
        *("sparkrack", "pyinfra", "paramiko", "gevent", "pydantic", "click", "routeros-api", "requests"),
    ]
    assert [found for _, _, found in named] == [version(name) for name, _, _ in named]


def test_a_package_that_is_not_installed_has_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log_module, "PACKAGES", ("click", "no-such-package"))
    assert ", no-such-package unknown, Python 3." in run_log_module.versions()


def test_an_unexpected_error_has_a_traceback_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", PASSWORD)
    SecretRef(env="CANARY").resolve()

    def fail() -> None:
        with run_log() as log:
            log.keep(tmp_path / "a.log")
            raise ZeroDivisionError(f"while {PASSWORD} was used")

    with pytest.raises(ZeroDivisionError):
        fail()
    text = (tmp_path / "a.log").read_text()
    assert "Traceback" in text
    assert "ZeroDivisionError: while *** was used" in text
    assert PASSWORD not in text


def test_a_full_disk_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as log:
        log.keep(tmp_path / "a.log")

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.write", full)
        LOG.info("x")
        LOG.error("y")
    with recording() as log:
        log.keep(tmp_path / "no" / "folder.log")
        LOG.info("x")


def test_nothing_is_left_after_a_run() -> None:
    before = list(LOG.handlers)
    with recording():
        assert LOG.isEnabledFor(logging.DEBUG)
    assert LOG.handlers == before
    assert not LOG.isEnabledFor(logging.INFO)
    assert not any(isinstance(one, RunLog) for one in LOG.handlers)


class _Account(_Server):
    """Logs in by a password, and gives a root shell without another one, which repeats what it is sent."""

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - the arguments are paramiko's
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:  # noqa: ARG002
        return 0 if password == PASSWORD else 1

    def _answer_command(self, channel: paramiko.Channel, command: str) -> None:
        self.replied.acquire(timeout=60)
        channel.sendall(command.partition("echo ")[2].partition(";")[0].encode() + b"\n")
        while part := channel.recv(1000):
            channel.sendall(part)
        channel.send_exit_status(0)
        channel.close()


class _AccountNode(SshNode):
    def behind(self, transport: paramiko.Transport) -> _Server:
        server = _Account(self)
        _tell_of_replies(transport, server.replied)
        return server


def test_the_password_of_a_node_is_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", PASSWORD)
    there = _AccountNode(speak)
    key = HostKey.parse(f"{there.key.get_name()} {there.key.get_base64()}")
    secret = SecretRef(env="CANARY").resolve()
    with recording() as log:
        log.keep(tmp_path / "a.log")
        shell = open_password_shell(ADDRESS, there.port, [key], "nvidia", secret, 10)
        done = shell.run(f"chpasswd <<END\nnvidia:{secret.get_secret_value()}\nEND")
        shell.close()
    there.close()
    assert PASSWORD in done.output.decode()
    text = (tmp_path / "a.log").read_text()
    assert f"{ADDRESS}: ssh as nvidia: chpasswd" in text
    assert PASSWORD not in text
    assert "nvidia:***" in text


class _Complaining(_Account):
    """Repeats the password in an error."""

    def _answer_command(self, channel: paramiko.Channel, command: str) -> None:
        self.replied.acquire(timeout=60)
        channel.sendall(command.partition("echo ")[2].partition(";")[0].encode() + b"\n")
        while channel.recv(1000):
            pass
        channel.sendall_stderr(f"sh: {PASSWORD}: not found\n".encode())
        channel.send_exit_status(127)
        channel.close()


class _ComplainingNode(SshNode):
    def behind(self, transport: paramiko.Transport) -> _Server:
        server = _Complaining(self)
        _tell_of_replies(transport, server.replied)
        return server


def test_bootstrap_keeps_a_journal_and_a_log_without_the_password(tmp_path: Path) -> None:
    there = _ComplainingNode(speak)
    rack = rack_file(tmp_path, there, known=False)
    (tmp_path / "host-keys").write_text(f"spark1 {there.key.fingerprint}\n")
    where: dict[str, Any] = {"RACK": str(rack), "XDG_STATE_HOME": str(tmp_path / "state"), "CANARY": PASSWORD}
    more = ("--host-keys", str(tmp_path / "host-keys"), "--password-env", "CANARY", "--as", "nvidia", "--timeout", "1")
    ended = command("sparkrack", "bootstrap", "nodes", "spark1", *more, **where)
    there.close()
    assert ended.code == 1, ended.text
    path = log_of(tmp_path)
    begun, error, finished = map(json.loads, path.with_suffix(".ndjson").read_text().splitlines())
    assert (begun["scope"], finished["result"], finished["failed"]) == ("bootstrap of spark1", "failed", ["spark1"])
    assert error["reason"].endswith("sh: ***: not found")
    text = path.read_text()
    assert f"{ADDRESS}: ssh as nvidia: " in text
    assert "printed: spark1: logged in as nvidia, by password" in text
    assert PASSWORD not in text + path.with_suffix(".ndjson").read_text()


def test_verbose_of_checks_that_run_in_other_processes(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sh\n")
    ssh.chmod(0o755)
    where: dict[str, Any] = {"RACK": "tests/cases/racks/valid/switch.yaml", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = command("sparkrack", "verify", "-v", "--limit", "spark1", "--only", "memory", **where)
    assert "spark1: ssh: " in done.stderr, done.text
    assert "spark1: ssh: " not in done.stdout


@pytest.mark.parametrize("error", [CommandError("no such rack"), RuntimeError("a bug")])
def test_an_error_in_a_logged_run_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), run_log():
        raise error
