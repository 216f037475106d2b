"""A node that shows another host key than the pinned one, or that none is pinned for: what is seen and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from tests.unit.cli.runs import command
from tests.unit.engine.ssh_node import ADDRESS, SshNode, rack_file


@pytest.fixture
def node() -> Iterator[SshNode]:
    there = SshNode(lambda _: (0, "", ""))
    yield there
    there.close()


def why(rack: Path, tmp_path: Path) -> str:
    reported = command("sparkrack", "plan", "--limit", "spark1", RACK=str(rack), XDG_STATE_HOME=str(tmp_path))
    assert (reported.code, reported.stderr) == (1, "")
    return reported.stdout.splitlines()[0]


def test_an_unknown_host_key_names_what_pins_it(tmp_path: Path, node: SshNode) -> None:
    assert why(rack_file(tmp_path, node, known=False), tmp_path) == (
        "spark1: unreachable: shows a host key, and known_hosts has none for its address; "
        "sparkrack bootstrap nodes spark1 shows its fingerprint and pins it"
    )


def test_a_line_that_is_not_a_text_is_named(tmp_path: Path, node: SshNode) -> None:
    rack, known_hosts = rack_file(tmp_path, node), tmp_path / "known_hosts"
    known_hosts.write_bytes(known_hosts.read_bytes() + b"# caf\xe9\n")
    assert why(rack, tmp_path) == (
        f"spark1: unreachable: {known_hosts}:2: is not UTF-8 text, so no key of the file is read; remove it"
    )


def test_a_changed_host_key_is_shown_beside_the_pinned_one(tmp_path: Path, node: SshNode) -> None:
    rack, other = rack_file(tmp_path, node), paramiko.ECDSAKey.generate()
    line = f"[{ADDRESS}]:{node.port} {other.get_name()} {other.get_base64()}\n"
    (tmp_path / "known_hosts").write_text(line)
    assert why(rack, tmp_path) == (
        f"spark1: unreachable: shows the host key {node.key.get_name()} {node.key.fingerprint}, "
        f"and known_hosts has {other.get_name()} {other.fingerprint}; compare it with the console, "
        "and if the node was re-imaged: sparkrack bootstrap nodes spark1 --replace-host-key"
    )
