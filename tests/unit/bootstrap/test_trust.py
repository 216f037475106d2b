"""Fingerprints that were read off consoles, and the key of the operator."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from sparkrack.bootstrap.errors import ContactError, last_line
from sparkrack.bootstrap.operator import public_line
from sparkrack.bootstrap.trust import Offer, label, stranger, vouched, vouchers_of
from sparkrack.hostkeys import HostKey
from tests.unit.bootstrap.test_hostkeys import made
from tests.unit.fleet.racks import SWITCH, loaded

RACK = loaded(SWITCH)


def test_a_file_vouches_by_name_by_address_and_by_key(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path, "rsa")
    file = tmp_path / "keys"
    file.write_text(
        f"# consoles\n\nspark1 {one.fingerprint} (ED25519)\n10.77.0.12,spark1 {two} a comment\nelse {one}\n"
    )
    assert vouchers_of(RACK, file) == {
        "spark1": {one.fingerprint, two.fingerprint},
        "spark2": {two.fingerprint},
    }
    assert vouched(Offer((two, one), ()), "spark1", file, vouchers_of(RACK, file)) == (two, one)
    assert vouched(Offer((one, two), ()), "spark2", file, vouchers_of(RACK, file)) == (two,)


@pytest.mark.parametrize(
    "line", ["spark1", "spark1 SHA256:short", "spark1 MD5:aa:bb", "spark1 \x1b[2J", "spark1 ssh-rsa AAAA"]
)
def test_a_line_that_vouches_for_nothing_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"\n{line}\n")
    with pytest.raises(ContactError, match=re.escape(f"{file}:2: ")) as fault:
        vouchers_of(RACK, file)
    assert str(fault.value).isprintable()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContactError, match="cannot be read: No such file"):
        vouchers_of(RACK, tmp_path / "none")


def test_only_another_key_makes_a_stranger(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path)
    file = tmp_path / "known_hosts"
    assert stranger(Offer((one,), ()), file, replace=False) is None
    assert stranger(Offer((one, two), (two,)), file, replace=False) is None
    assert stranger(Offer((one,), (two,)), file, replace=True) is None
    fault = stranger(Offer((one,), (two,)), file, replace=False)
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
    with pytest.raises(ContactError, match="has a passphrase and no agent holds it; run ssh-add"):
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
    with pytest.raises(ContactError, match="cannot be used: "):
        public_line(private)


def test_a_complaint_is_one_short_line() -> None:
    assert last_line(b"first\n\x1b[31mlast \xff\n\n") == "\\x1b[31mlast \ufffd"
    assert last_line(b"") == ""
    assert len(last_line(b"x" * 5000)) == 300
