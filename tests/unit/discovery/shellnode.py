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

from core.model import CONTAINER_SLICE
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
    "systemctl": {
        f"show -p MemoryMax --value {CONTAINER_SLICE}": "docker.memory",
        "is-active --quiet systemd-timesyncd.service": "",
    },
    "timedatectl": {None: "time-servers"},
    "sshd": {"-T": "sshd"},
    "ping": {None: ""},
}
"""The tool that answers each question, by its words (None: any)."""


class ShellNode(SshServer):
    """One node. `sudo`: whether the login user may become root without a password. `password`: of its account, which
    then lets no key in and whose sudo asks for it; None: keys only. `keys_accepted`: whether
    it lets a key in. `tried`: the accounts and passwords of logins.
    """

    def __init__(self, folder: Path, address: str, port: int = 0, *, sudo: bool = True) -> None:
        self.folder, self.sudo = folder, sudo
        self.password: str | None = None
        self.keys_accepted = True
        self.tried: list[tuple[str, str]] = []
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
                # `timedatectl` prints what stands behind the unit and the exit status in the answer of the node.
                answer = reported[question].text if question in reported else ""
                file.write_text(answer.partition("\n")[2] if tool == "timedatectl" else answer)
                lines.append(f"{'*' if words is None else shlex.quote(words)}) cat {shlex.quote(str(file))} ;;")
            path = self.folder / "bin" / tool
            path.write_text("\n".join([*lines, "*) exit 9 ;;", "esac"]) + "\n")
            path.chmod(0o755)

    def take_password(self, password: str) -> None:
        """Let no key in from now on, only this password, which sudo asks for again."""
        self.password = password
        judged = f'printf %s "$4" >&2; read -r typed; [ "$typed" = {shlex.quote(password)} ] || exit 1'
        sudo = f'{judged}; shift 5; exec "$@"'
        for tool, script in (("id", "echo 1000"), ("sudo", sudo)):
            (self.folder / "bin" / tool).write_text(f"#!/bin/sh\n{script}\n")
            (self.folder / "bin" / tool).chmod(0o755)

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

    def get_allowed_auths(self, username: str) -> str:
        return super().get_allowed_auths(username) if self.node.password is None else "publickey,password"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        taken = self.node.password is None and self.node.keys_accepted
        return super().check_auth_publickey(username, key) if taken else int(paramiko.common.AUTH_FAILED)

    def check_auth_password(self, username: str, password: str) -> int:
        self.node.tried.append((username, password))
        right = password == self.node.password
        return int(paramiko.common.AUTH_SUCCESSFUL if right else paramiko.common.AUTH_FAILED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.node.commands.append(command.decode())
        threading.Thread(target=self._run_command, args=(channel, command), daemon=True).start()
        return True

    def _run_command(self, channel: paramiko.Channel, command: bytes) -> None:
        if not self.node.sudo:
            channel.sendall_stderr(b"sudo: a password is required\n")
            channel.send_exit_status(1)
            channel.close()
            return
        environment = {**os.environ, "PATH": f"{self.node.folder / 'bin'}:{os.environ['PATH']}"}
        words = ["sh"] if self.node.password is None else ["sh", "-c", command.decode()]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        shell = subprocess.Popen(words, env=environment, bufsize=0, **pipes)
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
