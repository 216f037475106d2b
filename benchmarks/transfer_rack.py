"""Nodes between which a model or an image is transferred, and what their transfers cost.

Each node is an sshd in a network namespace; its link may be limited in each direction.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import BenchError
from benchmarks.unpacked_sshd import RSYNC, start_sshd, unpacked_environment, write_configuration

FILES = 4
SYSTEMCTL = """#!/bin/sh
for unit in "$@"; do :; done
pid=$(cat {top}/pids/${{unit%.service}} 2>/dev/null) || pid=0
[ "$1" != show ] || exec echo "$pid"
[ "$pid" -gt 0 ] && [ -d "/proc/$pid" ]
"""


@dataclass(frozen=True)
class Rack:
    """Nodes 0 to `receivers`; node 0 has the model of `size` bytes in `files` files. All files are below `top`."""

    top: Path
    receivers: int
    size: int
    files: int = FILES

    def address(self, node: int) -> str:
        """The address of a node."""
        return f"10.9.0.{node + 1}"

    def store(self, node: int) -> Path:
        """The folder of the model on a node."""
        return self.top / f"n{node}/m"

    def ssh(self) -> list[str]:
        """The command line of ssh up to the address, with the options that sparkrack gives."""
        options = ("BatchMode=yes", "Compression=no", f"UserKnownHostsFile={self.top}/known")
        words = ["ssh", "-F", "none", "-i", f"{self.top}/user", "-o", "Ciphers=^aes128-gcm@openssh.com"]
        return words + [word for option in options for word in ("-o", option)]

    def inside(self, node: int) -> tuple[str, ...]:
        """The words before a command that runs on a node."""
        return "ip", "netns", "exec", f"n{node}"

    def on(self, node: int, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in the namespace of a node."""
        return subprocess.Popen([*self.inside(node), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def build(self, megabits: int) -> list[subprocess.Popen[bytes]]:
        """Make namespaces, links (0 megabits: without a limit), keys and the model; return the servers."""
        for name in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.top}/{name}")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "link", "set", "br0", "up")
        limit = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms")
        servers = []
        for node in range(self.receivers + 1):
            name, inside = f"n{node}", Rack.inside(self, node)
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"v{node}", "master", "br0", "up")
            run(*inside, "ip", "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            run(*inside, "ip", "link", "set", "eth0", "up")
            if megabits:
                run("tc", "qdisc", "add", "dev", f"v{node}", *limit)
                run(*inside, "tc", "qdisc", "add", "dev", "eth0", *limit)
            servers.append(start_sshd(self.configuration(node), *self.inside(node)))
        key = (self.top / "host.pub").read_text()
        known = [f"{self.address(node)} {key}" for node in range(self.receivers + 1)]
        (self.top / "known").write_text("".join(known))
        self.add_model()
        (self.top / "bin").mkdir()
        (self.top / "pids").mkdir()
        (self.top / "bin/systemctl").write_text(SYSTEMCTL.format(top=self.top))
        (self.top / "bin/systemctl").chmod(0o755)
        libraries = unpacked_environment().get("LD_LIBRARY_PATH", "")
        (self.top / "bin/rsync").write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {RSYNC} "$@"\n')
        (self.top / "bin/rsync").chmod(0o755)
        time.sleep(1)
        return servers

    def configuration(self, node: int) -> Path:
        """Write the configuration of the server of a node."""
        path = self.top / f"sshd{node}"
        write_configuration(
            path,
            f"ListenAddress {self.address(node)}\nHostKey {self.top}/host\nAuthorizedKeysFile {self.top}/user.pub\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nMaxStartups 100\n"
            "Subsystem sftp internal-sftp\n"
            f"SetEnv PATH={self.top}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
        )
        return path

    def add_model(self) -> None:
        """Write the model on node 0, with its record, and the rows of a job."""
        store = self.store(0)
        (store / ".sparkrack").mkdir(parents=True)
        rows = []
        for number in range(self.files):
            content = os.urandom(self.size // self.files)
            (store / f"w{number}").write_bytes(content)
            rows.append([f"w{number}", len(content), hashlib.sha256(content).hexdigest()])
        (store / ".sparkrack/record").write_text("".join(f"{digest} {size} {path}\t1\n" for path, size, digest in rows))
        (self.top / "rows").write_text(json.dumps(rows))

    def remove_received(self, *, compared: bool) -> None:
        """Remove what came. Raises BenchError if it is compared and a node does not have each file."""
        for node in range(1, self.receivers + 1):
            for path, _, digest in json.loads((self.top / "rows").read_text()) if compared else ():
                with (self.store(node) / path).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                        raise BenchError(f"node {node}: {path} has other bytes than on node 0")
            shutil.rmtree(self.store(node), ignore_errors=True)


Transfer = Callable[[Rack], None]


def run(*words: str) -> None:
    """Run a command. Raises BenchError when it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(words)}: {done.stderr.strip()}")


def wait_for(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait for commands. Raises BenchError when one fails."""
    for process in started:
        if process.wait():
            raise BenchError(f"{process.args!r} ended with {process.returncode}")


def processor_seconds(servers: list[subprocess.Popen[bytes]]) -> float:
    """Processor time of all ended children of this process and of the servers, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for server in servers:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(
    rack: Rack, megabits: int, programs: Mapping[str, Transfer], floors: Mapping[str, Transfer], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Measure transfers by turns: the seconds and the processor seconds of each round, by name.

    Raises BenchError when a program leaves other files than those of node 0; what `floors` leave is not compared.
    """
    servers = rack.build(megabits)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, transfer in {**programs, **floors}.items():
            before, begun = processor_seconds(servers), time.monotonic()
            transfer(rack)
            wall = time.monotonic() - begun
            time.sleep(0.5)  # for sshd to reap its sessions
            found.setdefault(name, []).append((wall, processor_seconds(servers) - before))
            rack.remove_received(compared=name in programs)
    for server in servers:
        server.terminate()
    return found
