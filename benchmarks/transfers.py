"""`python -m benchmarks.transfers`: a model to 2, 4 and 8 nodes, by sparkrack's chain and by other programs.

Each node is an sshd in a network namespace; its link is limited in each direction, so the link is the floor and not the
processor of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import BenchError
from benchmarks.unpacked_sshd import RSYNC, start_sshd, unpacked_environment, write_configuration

PROGRAM = Path(__file__).parent.parent / "roles/models/files/fetch_model.py"
SENDER = PROGRAM.with_name("send_files.py")
PAGE = Path(__file__).parent.parent / "docs/evidence/transfers.md"
END = "<!-- end -->"
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
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
            name, inside = f"n{node}", ("ip", "netns", "exec", f"n{node}")
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

    def check(self) -> None:
        """Raises BenchError unless each node has each file, and removes what came."""
        for node in range(1, self.receivers + 1):
            for path, _, digest in json.loads((self.top / "rows").read_text()):
                with (self.store(node) / path).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                        raise BenchError(f"node {node}: {path} has other bytes than on node 0")
            shutil.rmtree(self.store(node))


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


def by_chain(rack: Rack) -> None:
    """Each node takes from the one before it, as in a run of sparkrack."""
    started = []
    for node in range(1, rack.receivers + 1):
        source = {"ssh": [*rack.ssh(), rack.address(node - 1)], "folder": str(rack.store(node - 1))}
        job = {"folder": str(rack.store(node)), "files": json.loads((rack.top / "rows").read_text()), "reserve": 0}
        path = rack.top / f"job{node}"
        path.write_text(
            json.dumps({**job, "source": {**source, "unit": f"u{node - 1}.service", "program": SENDER.read_text()}})
        )
        rack.store(node).parent.mkdir(exist_ok=True)
        process = rack.on(node, sys.executable, "-I", "-B", str(PROGRAM), "fetch", str(path))
        (rack.top / f"pids/u{node}").write_text(f"{process.pid}")
        started.append(process)
    wait_for(started)


def from_first(words: Callable[[Rack, str], list[str]], *, parallel: bool) -> Callable[[Rack], None]:
    """Return a distribution by one command for each node, which runs on node 0."""

    def distribute(rack: Rack) -> None:
        started = []
        for node in range(1, rack.receivers + 1):
            rack.store(node).mkdir(parents=True)
            started.append(rack.on(0, *words(rack, f"{rack.address(node)}:{rack.store(node)}/")))
            if not parallel:
                wait_for(started)
        wait_for(started)

    return distribute


def rsync(rack: Rack, target: str) -> list[str]:
    """The command of rsync, with the same cipher."""
    return [f"{rack.top}/bin/rsync", "-a", "--inplace", "-e", " ".join(rack.ssh()), f"{rack.store(0)}/", target]


def scp(rack: Rack, target: str) -> list[str]:
    """The command of scp, with the same cipher."""
    files = [str(path) for path in sorted(rack.store(0).glob("w*"))]
    return ["scp", "-q", *rack.ssh()[1:], *files, target]


TOOLS: dict[str, Callable[[Rack], None]] = {
    "sparkrack (chain)": by_chain,
    "rsync, one node after the other": from_first(rsync, parallel=False),
    "rsync, all nodes at once": from_first(rsync, parallel=True),
    "scp, one node after the other": from_first(scp, parallel=False),
    "scp, all nodes at once": from_first(scp, parallel=True),
}


def processor_seconds(servers: list[subprocess.Popen[bytes]]) -> float:
    """Processor time of all ended children of this process and of the servers, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for server in servers:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(receivers: int, size: int, megabits: int) -> list[str]:
    """Measure all tools with this number of receivers; return the rows of the table."""
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # the disk is not measured
        rack = Rack(Path(folder), receivers, size)
        servers = rack.build(megabits)
        for name, distribute in TOOLS.items():
            before, begun = processor_seconds(servers), time.monotonic()
            distribute(rack)
            wall = time.monotonic() - begun
            time.sleep(0.5)  # for sshd to reap its sessions
            used = processor_seconds(servers) - before
            rack.check()
            gigabytes = size / 1e9
            wire = wall / (size * 8 / megabits / 1e6)
            rows.append(
                f"| {receivers} | {name} | {wall:.1f} | {wall / gigabytes:.0f} | {wire:.2f} | "
                f"{used / gigabytes / receivers:.1f} |"
            )
            click.echo(rows[-1], err=True)
        for server in servers:
            server.terminate()
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--megabytes", default=128, show_default=True, type=click.IntRange(8), help="Size of the model.")
@click.option("--megabits", default=160, show_default=True, type=click.IntRange(1), help="Speed of each link.")
@click.option("--docs", is_flag=True, help="Put the table into docs/evidence/transfers.md as well.")
@click.option("--inside", type=int, hidden=True)
def main(megabytes: int, megabits: int, docs: bool, inside: int | None) -> None:
    """Bring a model to 2, 4 and 8 nodes, and compare the time and the processor time. Needs root, sshd and rsync."""
    missing = [name for name in ("ip", "tc", "scp") if not shutil.which(name)]
    if missing or os.geteuid():
        raise click.ClickException(f"needs {', '.join(missing) or 'root'}")
    if inside is not None:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        try:
            click.echo("\n".join(measure(inside, megabytes << 20, megabits)))
        except BenchError as error:
            raise click.ClickException(str(error)) from None
        return
    rows = [
        "| receivers | program | s | s/GB | times of one link | CPU s per GB and hop |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for receivers in (2, 4, 8):
        command = [*NAMESPACES, sys.executable, "-m", "benchmarks.transfers", f"--inside={receivers}"]
        command += [f"--megabytes={megabytes}", f"--megabits={megabits}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise click.ClickException(f"with {receivers} receivers it failed")
        rows += done.stdout.splitlines()
    load = f"{megabytes} MiB in {FILES} files in memory, each link {megabits} Mbit/s, load {os.getloadavg()[0]:.0f}"
    text = f"{load}, {os.cpu_count()} cores, {date()}:\n\n" + "\n".join(rows) + "\n"
    click.echo(text)
    if docs:
        write_table("transfers", text)


def write_table(name: str, text: str) -> None:
    """Put a table into the page, between its marks."""
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- generated: {name} -->\n")
    PAGE.write_text(head + begin + text + END + rest.partition(END)[2], encoding="utf-8")


def date() -> str:
    """Today, as in 2026-01-31."""
    return time.strftime("%Y-%m-%d", time.gmtime())


if __name__ == "__main__":
    main()
