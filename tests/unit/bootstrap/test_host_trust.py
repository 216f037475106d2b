"""Fingerprints that were read off consoles, and the key of the operator."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from core.ssh.host_keys import HostKey
from core.ssh.operator_key import OperatorKeyError, public_line
from sparkrack.bootstrap.host_trust import KeyOffer, fingerprints_of, key_conflict, label, match_fingerprints
from sparkrack.node_login.errors import BootstrapError, last_line
from tests.unit.bootstrap.test_hostkeys import made
from tests.unit.model.racks import SWITCH, loaded

RACK = loaded(SWITCH)


def test_a_file_vouches_by_name_by_address_and_by_key(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path, "rsa")
    file = tmp_path / "keys"
    file.write_text(
        f"# consoles\n\nspark1 {one.fingerprint} (ED25519)\n10.77.0.12,spark1 {two} a comment\nelse {one}\n"
    )
    assert fingerprints_of(RACK, file) == {
        "spark1": {one.fingerprint, two.fingerprint},
        "spark2": {two.fingerprint},
    }
    assert match_fingerprints(KeyOffer((two, one), ()), "spark1", file, fingerprints_of(RACK, file)) == (two, one)
    assert match_fingerprints(KeyOffer((one, two), ()), "spark2", file, fingerprints_of(RACK, file)) == (two,)


@pytest.mark.parametrize(
    "line", ["spark1", "spark1 SHA256:short", "spark1 MD5:aa:bb", "spark1 \x1b[2J", "spark1 ssh-rsa AAAA"]
)
def test_a_line_that_vouches_for_nothing_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"\n{line}\n")
    with pytest.raises(BootstrapError, match=re.escape(f"{file}:2: ")) as fault:
        fingerprints_of(RACK, file)
    assert str(fault.value).isprintable()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="cannot be read: No such file"):
        fingerprints_of(RACK, tmp_path / "none")


def test_only_another_key_makes_a_unknown_host(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path)
    file = tmp_path / "known_hosts"
    assert key_conflict(KeyOffer((one,), ()), file, replace=False) is None
    assert key_conflict(KeyOffer((one, two), (two,)), file, replace=False) is None
    assert key_conflict(KeyOffer((one,), (two,)), file, replace=True) is None
    fault = key_conflict(KeyOffer((one,), (two,)), file, replace=False)
    assert fault
    assert one.fingerprint in str(fault)
    assert two.fingerprint in str(fault)


def test_kinds_are_named_as_on_a_console(tmp_path: Path) -> None:
    assert label(made(tmp_path)) == "ED25519"
    assert label(HostKey("ssh-rsa", "")) == "RSA"
    assert label(HostKey("ecdsa-sha2-nistp256", "")) == "ECDSA 256"


def test_the_public_half_comes_from_beside_the_private_one_or_from_it(tmp_path: Path) -> None:
    made(tmp_path)
    private, beside = tmp_path / "key-0", tmp_path / "key-0.pub"
    line = beside.read_text().strip()
    assert public_line(private) == line
    beside.write_text((line.replace("AAAA", "AAAB", 1)) + "\n")
    assert public_line(private).split()[:2] == line.split()[:2], "one that belongs to another key is not used"
    beside.unlink()
    assert public_line(private).split()[:2] == line.split()[:2]


def test_a_key_with_a_passphrase_needs_an_agent_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "phrase", "-f", private], check=True)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(OperatorKeyError, match="has a passphrase and no agent holds it; run ssh-add"):
        public_line(private)
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert agent.poll() is None
        ask = tmp_path / "ask"
        ask.write_text("#!/bin/sh\necho phrase\n")
        ask.chmod(0o700)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", private], check=True, env=environment, stdin=subprocess.DEVNULL)
        assert public_line(private) == private.with_suffix(".pub").read_text().strip()
    finally:
        agent.terminate()
        agent.wait()


def test_a_key_that_is_none(tmp_path: Path) -> None:
    private = tmp_path / "id"
    private.write_text("rubbish\n")
    private.chmod(0o600)
    with pytest.raises(OperatorKeyError, match="cannot be used: "):
        public_line(private)


def test_a_complaint_is_one_short_line() -> None:
    assert last_line(b"first\n\x1b[31mlast \xff\n\n") == "\\x1b[31mlast \ufffd"
    assert last_line(b"") == ""
    assert len(last_line(b"x" * 5000)) == 300
