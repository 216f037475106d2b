"""The keys of a known_hosts file, checked against what OpenSSH's own ssh-keygen makes of it."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from core.ssh.host_keys import HostKey, HostKeyError, offered, pin, pinned

ADDRESS = "10.77.0.11"


def made(folder: Path, kind: str = "ed25519") -> HostKey:
    """A new key."""
    file = folder / f"key-{len(list(folder.glob('key-*')))}"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file], check=True)
    return HostKey.parse(file.with_suffix(".pub").read_text())


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_fingerprint_is_the_one_that_ssh_keygen_prints(tmp_path: Path, kind: str) -> None:
    key = made(tmp_path, kind)
    reported = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "key-0.pub"], check=True, capture_output=True, text=True
    )
    assert reported.stdout.split()[1] == key.fingerprint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 !!!!",
        "ssh-dss AAAA",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIE",
        "x" * 99,
        "ssh-rsa \x1b[2J",
    ],
)
def test_what_is_not_a_key_is_refused_on_one_printable_line(text: str) -> None:
    with pytest.raises(HostKeyError) as fault:
        HostKey.parse(text)
    assert str(fault.value).isprintable()
    assert len(str(fault.value)) < 250


def test_the_keys_of_one_address_are_replaced_and_every_other_byte_stays(tmp_path: Path) -> None:
    old, new, other = made(tmp_path), made(tmp_path), made(tmp_path)
    file = tmp_path / "known_hosts"
    rest = [f"# {ADDRESS} is ours\n", "\n", f"10.77.0.12 {other} a comment\t\n", f"{ADDRESS}5 {other}\n", "rubbish"]
    file.write_text(rest[0] + rest[1] + f"{ADDRESS} {old}\n" + f"[{ADDRESS}]:2222 {old}\n" + "".join(rest[2:]))
    file.chmod(0o640)
    pin(file, ADDRESS, 22, [new])
    assert pinned(file, ADDRESS, 22) == (new,)
    assert pinned(file, ADDRESS, 2222) == (old,)
    assert file.read_text() == rest[0] + rest[1] + f"{ADDRESS} {new}\n[{ADDRESS}]:2222 {old}\n" + "".join(rest[2:])
    assert file.stat().st_mode & 0o777 == 0o640
    pin(file, ADDRESS, 22, [])
    assert pinned(file, ADDRESS, 22) == ()
    assert [one.name for one in tmp_path.glob(".*")] == []


def test_a_line_for_several_names_keeps_the_others(tmp_path: Path) -> None:
    old, new = made(tmp_path), made(tmp_path)
    file = tmp_path / "known_hosts"
    file.write_text(f"spark1,{ADDRESS} {old} made by hand\n")
    pin(file, ADDRESS, 22, [new])
    assert file.read_text() == f"{ADDRESS} {new}\nspark1 {old} made by hand\n"


def test_names_that_openssh_has_hashed_are_known_and_replaced(tmp_path: Path) -> None:
    old, new, file = made(tmp_path), made(tmp_path), tmp_path / "known_hosts"
    file.write_text(f"[{ADDRESS}]:2222 {old}\n10.77.0.12 {old}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert pinned(file, ADDRESS, 2222) == (old,)
    pin(file, ADDRESS, 2222, [new])
    assert pinned(file, ADDRESS, 2222) == (new,)
    assert pinned(file, "10.77.0.12", 22) == (old,)


@pytest.mark.parametrize("names", ["10.77.0.*", "10.77.0.1?,spark1"])
def test_a_pattern_is_read_and_never_rewritten(tmp_path: Path, names: str) -> None:
    key, file = made(tmp_path), tmp_path / "known_hosts"
    file.write_text(f"{names} {key}\n!{ADDRESS},10.* {made(tmp_path)}\n")
    before = file.read_bytes()
    assert pinned(file, ADDRESS, 22) == (key,)
    with pytest.raises(HostKeyError, match="known_hosts:1: a pattern has"):
        pin(file, ADDRESS, 22, [made(tmp_path)])
    assert file.read_bytes() == before


@pytest.mark.parametrize("between", ["\x85", "\x0c", "\u2028", "\r"])
def test_only_what_ends_a_line_for_openssh_ends_a_line(tmp_path: Path, between: str) -> None:
    old, new, other = made(tmp_path), made(tmp_path), made(tmp_path)
    file = tmp_path / "known_hosts"
    rest = f"# before{between}after\n10.77.0.12 {other} a{between}comment\n"
    # The end of this line would be a line of ssh-keygen's own.
    file.write_bytes(f"{rest}{ADDRESS} {old} c{between}# Host {ADDRESS} found: line 1 {between}x".encode())
    assert pinned(file, ADDRESS, 22) == (old,)
    pin(file, ADDRESS, 22, [new])
    assert file.read_bytes() == f"{rest}{ADDRESS} {new}\n".encode()


def test_a_line_that_openssh_cuts_at_a_null_byte_is_not_a_key(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{ADDRESS}\0 {made(tmp_path)}\n")
    with pytest.raises(HostKeyError, match=r"known_hosts:1: .*is not a host key"):
        pinned(file, ADDRESS, 22)


def test_without_ssh_keygen_nothing_is_known_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{ADDRESS} {made(tmp_path)}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostKeyError, match=r"ssh-keygen cannot search .*known_hosts: .*No such file"):
        pinned(file, ADDRESS, 22)
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\necho broken >&2\nexit 255\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    with pytest.raises(HostKeyError, match=r"ssh-keygen cannot search .*known_hosts: broken"):
        pin(file, ADDRESS, 22, [])


@pytest.mark.parametrize("marker", ["@revoked", "@cert-authority"])
def test_a_line_with_a_marker_stops_what_is_about_its_address(tmp_path: Path, marker: str) -> None:
    key, file = made(tmp_path), tmp_path / "known_hosts"
    file.write_text(f"{marker} {ADDRESS} {key}\n")
    with pytest.raises(HostKeyError, match=marker):
        pinned(file, ADDRESS, 22)
    with pytest.raises(HostKeyError, match=marker):
        pin(file, ADDRESS, 22, [key])
    assert pinned(file, "10.77.0.12", 22) == ()


def test_a_new_file_and_one_behind_a_link(tmp_path: Path) -> None:
    key = made(tmp_path)
    link, file = tmp_path / "link", tmp_path / "real"
    assert pinned(link, ADDRESS, 22) == ()
    link.symlink_to(file)
    pin(link, ADDRESS, 22, [key, key])
    assert link.is_symlink()
    assert file.read_text() == f"{ADDRESS} {key}\n"
    assert file.stat().st_mode & 0o777 == 0o644
    was = file.stat()
    pin(file, ADDRESS, 22, [key])
    assert file.stat().st_ino == was.st_ino, "the same again is not a write"


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HostKeyError, match="cannot be read or written: No such file or directory"):
        pin(tmp_path / "gone" / "known_hosts", ADDRESS, 22, [made(tmp_path)])
    with pytest.raises(HostKeyError, match="cannot be read or written: Is a directory"):
        pinned(tmp_path, ADDRESS, 22)


def test_no_one_there_and_another_user_who_is_not_a_sshd_are_distinguished() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(HostKeyError, match="shows no host key"):
            offered("127.0.0.1", port, 1)
    with pytest.raises(HostKeyError, match="does not answer: Connection refused"):
        offered("127.0.0.1", port, 1)
