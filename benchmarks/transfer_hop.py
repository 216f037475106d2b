"""`python -m benchmarks.transfer_hop`: one hop between two processes of this machine, without a limit of the link.

A model in a few large files and one in many small files, by sparkrack and by other programs, beside what no program can
be faster than here: the cipher of ssh alone, a TCP connection alone, a copy in memory, sha256 alone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks import BenchError
from benchmarks.transfers import (
    NAMESPACES,
    Rack,
    by_chain,
    date,
    from_first,
    processor_seconds,
    rsync,
    run,
    scp,
    wait_for,
    write_table,
)

SERVE = """import os, socket, sys
with socket.create_server((sys.argv[1], 5001)) as server:
    peer = server.accept()[0]
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            peer.sendfile(file)
    peer.close()
"""
TAKE = """import socket, sys, time
while True:
    try:
        peer = socket.create_connection((sys.argv[1], 5001))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
buffer = bytearray(1 << 20)
while peer.recv_into(buffer):
    pass
"""
DIGEST = 'import hashlib, sys; [hashlib.file_digest(open(path, "rb"), "sha256") for path in sys.argv[1:]]'
Hop = Callable[[Rack], None]


def shell(rack: Rack, node: int, text: str) -> None:
    """Run a shell text on a node. Raises BenchError when it fails."""
    rack.store(1).mkdir(parents=True, exist_ok=True)
    wait_for([rack.on(node, "sh", "-ec", text)])


def by_stream(sending: str, taking: str) -> Hop:
    """Return a transfer of one stream over ssh, which node 1 asks for."""

    def transfer(rack: Rack) -> None:
        ssh = " ".join([*rack.ssh(), rack.address(0)])
        shell(rack, 1, f"{ssh} 'cd {rack.store(0)} && {sending}' | (cd {rack.store(1)} && {taking})")

    return transfer


def by_tcp(rack: Rack) -> None:
    """A connection without encryption, whose bytes are dropped."""
    paths = map(str, sorted(rack.store(0).glob("w*")))
    server = rack.on(0, sys.executable, "-I", "-c", SERVE, rack.address(0), *paths)
    wait_for([rack.on(1, sys.executable, "-I", "-c", TAKE, rack.address(0)), server])


def by_shell(text: str) -> Hop:
    """Return a command that runs in the folder of node 0; TARGET is the one of node 1."""
    return lambda rack: shell(rack, 0, f"cd {rack.store(0)}; " + text.replace("TARGET", f"{rack.store(1)}"))


PROGRAMS: dict[str, Hop] = {
    "sparkrack": by_chain,
    "rsync": from_first(rsync, parallel=False),
    "scp": from_first(scp, parallel=False),
    "`ssh tar c` to `tar x`": by_stream("tar cf - w*", "tar xf -"),
}
FLOORS: dict[str, Hop] = {
    "ssh, dropped (`cat` to `/dev/null`)": by_stream("cat w*", "cat >/dev/null"),
    "TCP, dropped": by_tcp,
    "copy in memory (`cp`)": by_shell("cp w* TARGET"),
    "sha256 (Python)": by_shell(f"{sys.executable} -c '{DIGEST}' w*"),
}


def measure(rack: Rack, rounds: int, floors: dict[str, Hop], label: str) -> list[str]:
    """Measure each by turns; return the rows of a table, with the medians."""
    servers = rack.build(0)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, transfer in {**PROGRAMS, **floors}.items():
            before, begun = processor_seconds(servers), time.monotonic()
            transfer(rack)
            wall = time.monotonic() - begun
            time.sleep(0.5)  # for sshd to reap its sessions
            found.setdefault(name, []).append((wall, processor_seconds(servers) - before))
            if name in PROGRAMS:
                rack.check()
            shutil.rmtree(rack.store(1), ignore_errors=True)
    for server in servers:
        server.terminate()
    gigabytes = rack.size / 1e9
    rows = []
    for name, pairs in found.items():
        wall, used = (statistics.median(values) for values in zip(*pairs, strict=True))
        each = ", ".join(f"{one / gigabytes:.2f}" for _, one in pairs)
        rows.append(f"| {label} | {name} | {wall:.1f} | {wall / gigabytes:.2f} | {used / gigabytes:.2f} | {each} |")
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--megabytes", default=1024, show_default=True, type=click.IntRange(8), help="Size of the large model.")
@click.option("--files", default=10_000, show_default=True, type=click.IntRange(1), help="Number of the small files.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Rounds, by turns.")
@click.option("--docs", is_flag=True, help="Put the table into docs/evidence/transfers.md as well.")
@click.option("--inside", type=str, hidden=True)
def main(megabytes: int, files: int, rounds: int, docs: bool, inside: str | None) -> None:
    """Bring a model over one hop, and compare the time and the processor time. Needs root and what set-up unpacks."""
    if inside is not None:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # the disk is not measured
            large = Rack(Path(folder), 1, megabytes << 20)
            small = Rack(Path(folder), 1, files * 10_000, files)
            try:
                if inside == "large":
                    rows = measure(large, rounds, FLOORS, f"{megabytes} MiB in {large.files} files")
                else:
                    rows = measure(small, rounds, {}, f"{files} files of 10 kB")
            except BenchError as error:
                raise click.ClickException(str(error)) from None
        click.echo("\n".join(rows))
        return
    rows = [
        "| model | program | s | s/GB | CPU s/GB | CPU s/GB of each round |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for size in ("large", "small"):
        command = [*NAMESPACES, sys.executable, "-m", "benchmarks.transfer_hop", f"--inside={size}"]
        command += [f"--megabytes={megabytes}", f"--files={files}", f"--rounds={rounds}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise click.ClickException(f"the {size} files failed")
        rows += done.stdout.splitlines()
    load = f"In memory, load {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores, {date()}, medians of {rounds} rounds"
    text = f"{load}:\n\n" + "\n".join(rows) + "\n"
    click.echo(text)
    if docs:
        write_table("hop", text)


if __name__ == "__main__":
    main()
