"""A file of the operator's machine on its way to a node, over a real ssh connection on loopback."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import paramiko
import pytest
from pyinfra.api.host import Host

from core.model.model_lock import ModelFile
from core.ops.detached_unit import TransferStoppedError
from roles.models import operator_folder, scripts
from tests.unit.ops.shells import stand_in
from tests.unit.roles.models_hub import sha256
from tests.unit.sshserver import AnyKey, SshServer

CONTENT = bytes(range(256)) * 5000
FILE = ModelFile("sub/x.bin", len(CONTENT), sha256(CONTENT))


class ShellServer(SshServer):
    """Runs each command by /bin/sh, with a stand-in for sudo. `cut`: bytes after which it closes the connection."""

    def __init__(self, root: Path) -> None:
        self.root, self.cut = root, 0
        self.running: list[threading.Thread] = []
        stand_in(root, "sudo", '[ "$1 $2" = "-H -n" ] && shift 2 && exec "$@"')
        super().__init__("127.0.0.1")

    def behind(self, transport: paramiko.Transport) -> AnyKey:  # noqa: ARG002
        server = self

        class Commands(AnyKey):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
                server.commands.append(command.decode())
                server.running.append(threading.Thread(target=server.execute, args=(channel, command), daemon=True))
                server.running[-1].start()
                return True

        return Commands()

    def execute(self, channel: paramiko.Channel, command: bytes) -> None:
        path = f"{self.root}/bin:/usr/bin:/bin"
        received = 0
        with subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": path}
        ) as process:
            assert process.stdin
            assert process.stderr
            try:
                while block := channel.recv(1 << 15):
                    process.stdin.write(block)
                    received += len(block)
                    if self.cut and received >= self.cut:
                        channel.get_transport().close()
                        return
                process.stdin.close()
            except BrokenPipeError:
                pass
            channel.sendall_stderr(process.stderr.read())
            channel.send_exit_status(process.wait())
        channel.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShellServer]:
    found = ShellServer(tmp_path / "node")
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def host(server: ShellServer) -> Iterator[Host]:
    client = paramiko.SSHClient()
    client.get_host_keys().add(f"[127.0.0.1]:{server.port}", server.key.get_name(), server.key)
    client.connect(
        "127.0.0.1", server.port, "ops", pkey=paramiko.ECDSAKey.generate(), look_for_keys=False, allow_agent=False
    )
    try:
        yield cast(Host, SimpleNamespace(connector=SimpleNamespace(client=client)))
    finally:
        client.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model/sub").mkdir(parents=True)
    (tmp_path / "model/sub/x.bin").write_bytes(CONTENT)
    return tmp_path / "model"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    found = tmp_path / "it's a store/.sparkrack/parts/0123"
    found.parent.mkdir(parents=True)
    return found


def send(host: Host, folder: Path, part: Path, start: int = 0, **changes: Any) -> int:
    sent: list[int] = []
    file = ModelFile(**{**vars(FILE), **changes})
    operator_folder.send_rest(host, folder, file, start, scripts.append(str(part), start), sent.append)
    return sum(sent)


@pytest.mark.parametrize("start", [0, 1, 700_001, len(CONTENT)])
def test_the_rest_of_a_file(host: Host, folder: Path, part: Path, start: int) -> None:
    part.write_bytes(CONTENT[:start])
    assert send(host, folder, part, start) == len(CONTENT) - start
    assert part.read_bytes() == CONTENT


def test_a_connection_that_ends(server: ShellServer, host: Host, folder: Path, part: Path) -> None:
    server.cut = 100_000
    with pytest.raises((OSError, EOFError, paramiko.SSHException, TransferStoppedError)):
        send(host, folder, part)
    for command in server.running:  # dd still writes what it received
        command.join(60)
        assert not command.is_alive()
    kept = part.read_bytes()
    assert len(kept) >= server.cut
    assert kept == CONTENT[: len(kept)]


def test_a_node_that_cannot_write(host: Host, folder: Path, part: Path) -> None:
    with pytest.raises(TransferStoppedError, match=r"^sub/x\.bin: dd: .*No such file or directory"):
        send(host, folder, part.parent / "none/x")


def test_a_file_that_is_gone_or_has_another_size(server: ShellServer, host: Host, folder: Path, part: Path) -> None:
    with pytest.raises(TransferStoppedError, match="has 1280000 bytes, and 5 in the lock file"):
        send(host, folder, part, size=5)
    with pytest.raises(TransferStoppedError, match="No such file"):
        send(host, folder, part, path="none")
    assert server.commands == []
    assert not part.exists()


def test_a_file_that_becomes_shorter(host: Host, folder: Path, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sub/x.bin").write_bytes(CONTENT[:-1])
    monkeypatch.setattr(os, "fstat", lambda _: SimpleNamespace(st_size=len(CONTENT)))
    with pytest.raises(TransferStoppedError, match="became shorter while it was sent"):
        send(host, folder, part)


def test_a_connection_that_is_closed(host: Host, folder: Path, part: Path) -> None:
    closed = cast(Host, SimpleNamespace(connector=SimpleNamespace(client=None)))
    with pytest.raises(OSError, match="the connection is closed"):
        send(closed, folder, part)
