"""The options of init and adopt: what each means, and in which words it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.discovery import neighbours

NODES = ("--node", "a=10.77.0.11", "--node", "b=10.77.0.12")


def reported(tmp_path: Path, *words: str) -> str:
    out = tmp_path / "rack.yaml"
    ended = CliRunner().invoke(sparkrack, ["init", "--out", str(out), *words])
    assert ended.exit_code in (1, 2)
    assert not out.exists()
    return ended.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--node", "spark1"), "--node: 'spark1' is not NAME=ADDRESS"),
        (("--node", "spark1=ten"), "ten is not an IPv4 address; write one like 10.77.0.11"),
        (("--node", "-x=10.77.0.11"), "-x cannot be the name of a machine; write 1 to 63 letters"),
        (("--node", "localhost=10.77.0.11"), "localhost is a loopback name"),
        ((*NODES, "--switch", "all=10.77.0.2"), "all is a group of pyinfra's inventory"),
        (("--node", "spark1=169.254.1.1"), "169.254.1.1 is link-local, which no machine keeps"),
        ((*NODES, "--user", "Ops.User", "--key", "k"), "access.user: Ops.User cannot be a user name; write 1 to 32"),
        ((*NODES, "--node", "a=10.77.0.13"), "two nodes have the same name"),
        ((*NODES, "--switch", "10.77.0"), "10.77.0 is not an IPv4 address; write one like 10.77.0.11"),
        ((*NODES, "--vendor", "acme"), "--vendor: 'acme' is none of nvidia, asus"),
        ((*NODES, "--vendor", "c=asus"), "--vendor: there is no --node c"),
        ((*NODES, "--cable", "c/1=sw/x"), "--cable: 'c/1' is not a port of a --node; write a/1"),
        ((*NODES, "--cable", "a/2=sw/x"), "--cable: 'a/2' is not a port of a --node; write a/1"),
        ((*NODES, "--cage", "qsfp=1x1G"), "--cage: a CRS812 has no cage 'qsfp'; it has sfp56-1"),
        ((*NODES, "--cage", "sfp56-1=4x100G"), "--cage: sfp56-1 can be 1x50G, 1x25G, 1x10G, 1x1G"),
        ((*NODES, "--fingerprint", "ab"), "--fingerprint: write the 64 hex digits of its SHA-256"),
        ((*NODES, "--switch-password-env", "A", "--switch-password-file", "b"), "exclude one another"),
        ((*NODES, "--switch-password-env", "hunter 2"), "never write the password itself"),
        (("--user", "ops"), "no node is named"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(
    tmp_path: Path, words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no ssh
    monkeypatch.setattr(neighbours, "nodes", lambda: ((), ""))  # nor a question to the network
    assert text in reported(tmp_path, *words)


def test_host_keys_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    assert f"{file} cannot be read: No such file or directory; nothing was written" in reported(
        tmp_path, *NODES, "--host-keys", str(file)
    )
    file.write_text("a SHA256:short\n")
    assert f"{file}:1: a SHA256:short is neither NODE SHA256:... nor a line of known_hosts" in reported(
        tmp_path, *NODES, "--host-keys", str(file)
    )
