"""Nodes as they leave the factory, on loopback, and an operator with a key and a rack file."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from core.ssh.host_keys import HostKey
from tests.contact import forked_command
from tests.generated import REPOSITORY

PASSWORD = "Blue horse; $(battery) 'staple\" 7"
"""A shell that saw it would choke on it."""
SCRIPT = Path(__file__).parent / "target.sh"
PATIENCE = 60.0
HOSTS = "127.0.0.1 localhost\n127.0.1.1 spark-1a2b\t# the wizard's\n::1 localhost ip6-localhost\n"


@dataclass
class Node:
    """One running node. `pid`: its process 1, as this machine numbers it."""

    name: str
    address: str
    port: int
    folder: Path
    outer: subprocess.Popen[bytes]
    pid: int = 0

    def ask(self, script: str, *, fails: bool = False) -> str:
        """Return the output of a shell text inside, as root."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--pid", "--ipc", "--root", "--wd"]
        done = subprocess.run([*inside, "/bin/sh", "-c", script], capture_output=True, text=True)
        assert fails or done.returncode == 0, f"{self.name}: {script}: {done.stderr}"
        return done.stdout

    def state(self) -> str:
        """All that a contact may change, with owners and modes, but for the mark that sudo itself leaves in a home."""
        return self.ask(
            "set -e; cd /; rm -f home/*/.sudo_as_admin_successful; cat proc/sys/kernel/hostname; ls run/reboot* || :; "
            "find etc home root -type f -exec sha256sum {} + | sort -k2; "
            "find etc home root -printf '%p %y %u:%g %m %l\\n' | sort"
        )

    @property
    def keys(self) -> dict[str, HostKey]:
        """Its host keys by kind, from its own files."""
        lines = self.ask("cat /etc/ssh/ssh_host_*_key.pub").splitlines()
        return {key.kind: key for key in map(HostKey.parse, lines)}

    @property
    def log(self) -> str:
        """Return the log of its sshd."""
        return self.ask("cat /var/log/sshd.log")

    def end(self) -> None:
        """End it."""
        self.outer.kill()  # --kill-child: the kernel ends the rest
        self.outer.wait()
        shutil.rmtree(self.folder)


@cache
def host_keys(owner: str) -> dict[str, str]:
    """Host keys by path, as an image brings them; made once for each owner."""
    found: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        for kind in ("ed25519", "ecdsa", "rsa"):
            file = Path(folder) / f"ssh_host_{kind}_key"
            comment = f"root@{owner}"
            size = ["-b", "2048"] if kind == "rsa" else []  # as short as sshd accepts: a longer one takes 0.5 s
            words = ["ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-C", comment, "-f", str(file)]
            subprocess.run(words, check=True)
            found |= {f"etc/ssh/{path.name}": path.read_text() for path in (file, file.with_suffix(".pub"))}
    return found


@dataclass
class Seed:
    """Initial state of a node: files by path, its machine-id, its name, and whether sshd blocks an address after failed
    logins.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    machine_id: str = "0123456789abcdef0123456789abcdef"
    name: str = "spark-1a2b"
    penalties: bool = False


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def start(root: Path, folder: Path, name: str, address: str, port: int, seed: Seed) -> Node:
    """Start a node in factory state. Raises AssertionError with its output."""
    place = folder / f"node-{name}"
    tree = place / "seed"
    files = {"etc/hosts": HOSTS, "etc/machine-id": f"{seed.machine_id}\n", **host_keys(name), **seed.files}
    for path, text in files.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(seed.modes.get(path, 0o600 if path.endswith("_key") else 0o644))
    (place / "password").write_text(PASSWORD)
    (place / "name").write_text(seed.name)
    if seed.penalties:
        (place / "penalties").touch()
    names = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    with (place / "log").open("wb") as log:
        outer = subprocess.Popen(
            ["unshare", *names, "sh", str(SCRIPT), str(root), str(place), address, str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    node = Node(name, address, port, place, outer)
    until = time.monotonic() + PATIENCE
    while not _answers_ssh(address, port):
        reported = (place / "log").read_text(errors="replace")
        assert outer.poll() is None, f"{name} does not start: {reported}"
        assert time.monotonic() < until, f"{name} does not answer: {reported}"
        time.sleep(0.02)
    node.pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
    return node


def _answers_ssh(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass
class Operator:
    """A machine with a key, a rack file and nothing else of ours."""

    folder: Path
    nodes: dict[str, Node]

    def __post_init__(self) -> None:
        ports = {node.port for node in self.nodes.values()}
        assert len(ports) == 1
        entries = "".join(
            f"  {name}: {{address: {node.address}, vendor: nvidia, ports: {_ports_entry(number, len(self.nodes))}}}\n"
            for number, (name, node) in enumerate(self.nodes.items())
        )
        self.rack = self.folder / "rack.yaml"
        fabric = "subnets: [192.168.100.0/24, 192.168.101.0/24]" if len(self.nodes) < 3 else "pool: 10.100.0.0/20"
        self.rack.write_text(
            "rack: boxed\n"
            f"access: {{user: ops, key: {self.folder}/id, known_hosts: known_hosts, port: {ports.pop()}}}\n"
            f"nodes:\n{entries}fabric: {{{fabric}}}\n"
        )
        self.known_hosts = self.folder / "known_hosts"
        self.key = self.folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "operator", "-f", self.key], check=True)
        self.password = self.folder / "password"
        self.give(PASSWORD)
        self.consoles = self.folder / "consoles"
        best = "".join(f"{name} {node.keys['ssh-ed25519'].fingerprint}\n" for name, node in self.nodes.items())
        self.consoles.write_text(f"# as the consoles show them\n\n{best}")

    def give(self, password: str) -> None:
        """Write another password to the file."""
        self.password.write_text(f"{password}\n")
        self.password.chmod(0o600)

    def words(self, *words: str) -> list[str]:
        """The words of `sparkrack bootstrap` for its rack."""
        return ["bootstrap", *words, "--rack", str(self.rack)]

    def command(self, *words: str) -> list[str]:
        """A command line with them."""
        return [sys.executable, "-m", "sparkrack.cli.main", *self.words(*words)]

    def environment(self) -> dict[str, str]:
        """Environment without the tester's own keys."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
        return {**own, "HOME": str(self.folder), "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"}

    def run(self, *words: str, kill: int | None = None, secret: bool = True, vouched: bool = True) -> Done:
        """`bootstrap nodes` without a terminal; with `kill` it dies by SIGKILL after that many writes."""
        more = ["--password-file", str(self.password)] if secret else []
        more += ["--host-keys", str(self.consoles)] if vouched else []
        line = self.words("nodes", "--as", "nvidia", "--timeout", "60", *more, *words)
        return Done.of(forked_command.run(line, self.environment(), 240, kill))

    def by_key(self, name: str, command: str) -> str:
        """Return the output of a command over a login like that of later runs: by key, with the host keys in
        known_hosts only.
        """
        node = self.nodes[name]
        options = {
            "UserKnownHostsFile": str(self.known_hosts),
            "StrictHostKeyChecking": "yes",
            "GlobalKnownHostsFile": "none",
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        line = ["ssh", "-F", "none", "-i", str(self.key), "-p", str(node.port), *words, f"ops@{node.address}", command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass(frozen=True)
class Done:
    """Exit status and output of a run."""

    code: int
    output: str
    errors: str

    @classmethod
    def of(cls, done: subprocess.CompletedProcess[bytes]) -> Done:
        """Raises AssertionError when it shows a traceback or the password."""
        assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
        assert PASSWORD.encode() not in done.stdout + done.stderr
        return cls(done.returncode, done.stdout.decode(), done.stderr.decode())

    def lines(self, start: str) -> Sequence[str]:
        """The lines that begin so."""
        return [line for line in self.output.splitlines() if line.startswith(start)]

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def _ports_entry(number: int, count: int) -> str:
    """Two nodes on one cable, more in a ring."""
    if count == 1:
        return "{}"
    if count == 2:
        return f"{{1: spark{2 - number}/1}}"
    return f"{{1: spark{(number + 1) % count + 1}/0}}"
