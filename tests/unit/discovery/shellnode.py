"""A node that is an ssh server of this process on loopback, with a real shell behind it in which its tools are
stand-ins: OpenSSH's client logs in, and the very script that a node is asked runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko

from core.probes.protocol import Answer
from core.ssh.host_keys import HostKey
from tests.unit.discovery.worlds import World
from tests.unit.sshserver import AnyKey, SshServer

ANSWERS: Mapping[str, Mapping[str | None, str]] = {
    "ip": {"-d -j address": "links", "-j neigh": "neighbours", "-j route show default": "route"},
    "dmidecode": {"-s system-manufacturer": "maker", "-s baseboard-manufacturer": "board"},
    "hostname": {"": "hostname"},
    "uname": {"-r": "kernel"},
    "nvidia-smi": {"--query-gpu=driver_version --format=csv,noheader": "driver"},
    "dpkg-query": {None: "packages"},
    "systemctl": {None: "docker.memory"},
    "sshd": {"-T": "sshd"},
    "ping": {None: ""},
}
"""The tool that answers each question, by its words (None: any)."""


class ShellNode(SshServer):
    """One node. `sudo`: whether the login user may become root without a password."""

    def __init__(self, folder: Path, address: str, port: int = 0, *, sudo: bool = True) -> None:
        self.folder, self.sudo = folder, sudo
        (folder / "bin").mkdir(parents=True)
        super().__init__(address, port)

    @property
    def host_key(self) -> HostKey:
        return HostKey.parse(f"{self.key.get_name()} {self.key.get_base64()}")

    def answers(self, reported: Mapping[str, Answer]) -> None:
        """Set the answers of the stand-ins."""
        for tool, questions in ANSWERS.items():
            lines = ["#!/bin/sh", f'echo "{tool} $*" >> {shlex.quote(str(self.folder))}/asked', 'case "$*" in']
            for words, question in questions.items():
                file = self.folder / f"{tool}-{question}"
                file.write_text(reported[question].text if question in reported else "")
                lines.append(f"{'*' if words is None else shlex.quote(words)}) cat {shlex.quote(str(file))} ;;")
            path = self.folder / "bin" / tool
            path.write_text("\n".join([*lines, "*) exit 9 ;;", "esac"]) + "\n")
            path.chmod(0o755)

    @property
    def asked(self) -> str:
        """Return the tools that were called, with their words."""
        file = self.folder / "asked"
        return file.read_text() if file.exists() else ""

    def behind(self, transport: paramiko.Transport) -> AnyKey:  # noqa: ARG002
        return _Server(self)


class _Server(AnyKey):
    def __init__(self, node: ShellNode) -> None:
        self.node = node

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.node.commands.append(command.decode())
        threading.Thread(target=self._run, args=(channel,), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel) -> None:
        if not self.node.sudo:
            channel.sendall_stderr(b"sudo: a password is required\n")
            channel.send_exit_status(1)
            channel.close()
            return
        environment = {**os.environ, "PATH": f"{self.node.folder / 'bin'}:{os.environ['PATH']}"}
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        shell = subprocess.Popen(["sh"], env=environment, bufsize=0, **pipes)
        given, reported, complained = shell.stdin, shell.stdout, shell.stderr
        assert given
        assert reported
        assert complained

        def out() -> None:
            while data := reported.read(65536):
                channel.sendall(data)

        def complain() -> None:
            while data := complained.read(65536):
                channel.sendall_stderr(data)

        threads = [threading.Thread(target=work, daemon=True) for work in (out, complain)]
        for thread in threads:
            thread.start()
        while data := channel.recv(65536):
            given.write(data)
        given.close()
        code = shell.wait(60)
        for thread in threads:
            thread.join(60)
        channel.send_exit_status(code)
        channel.close()


def standing(folder: Path, world: World, addresses: Mapping[str, str]) -> dict[str, ShellNode]:
    """A server for each node of a world, all on one port; `addresses` on loopback."""
    nodes: dict[str, ShellNode] = {}
    port = 0
    for name, address in addresses.items():
        nodes[name] = ShellNode(folder / name, address, port)
        port = nodes[name].port
        nodes[name].answers(world.nodes[name])
    return nodes


def key_file(folder: Path) -> Path:
    """A key of the operator."""
    file = folder / "key"
    if not file.exists():
        paramiko.ECDSAKey.generate().write_private_key_file(str(file))
    return file
