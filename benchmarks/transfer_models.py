"""The transfers of a model that are compared: by sparkrack, by other programs, and what each of them needs at least."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.transfer_rack import Rack, Transfer, wait_for
from roles.models import scripts

SENDER = Path(__file__).parent.parent / "roles/models/files/send_files.py"
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


def by_chain(rack: Rack) -> None:
    """Each node takes from the one before it, as in a run of sparkrack."""
    started = []
    program = rack.top / "fetch-program"
    program.write_bytes(scripts.fetch_program())
    for node in range(1, rack.receivers + 1):
        source = {"ssh": [*rack.ssh(), rack.address(node - 1)], "folder": str(rack.store(node - 1))}
        job = {"folder": str(rack.store(node)), "files": json.loads((rack.top / "rows").read_text()), "reserve": 0}
        path = rack.top / f"job{node}"
        path.write_text(
            json.dumps({**job, "source": {**source, "unit": f"u{node - 1}.service", "program": SENDER.read_text()}})
        )
        rack.store(node).parent.mkdir(exist_ok=True)
        process = rack.on(node, sys.executable, "-I", "-B", str(program), "fetch", str(path))
        (rack.top / f"pids/u{node}").write_text(f"{process.pid}")
        started.append(process)
    wait_for(started)


def from_first(words: Callable[[Rack, str], list[str]], *, parallel: bool) -> Transfer:
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


TO_NODES: dict[str, Transfer] = {
    "sparkrack (chain)": by_chain,
    "rsync, one node after the other": from_first(rsync, parallel=False),
    "rsync, all nodes at once": from_first(rsync, parallel=True),
    "scp, one node after the other": from_first(scp, parallel=False),
    "scp, all nodes at once": from_first(scp, parallel=True),
}


def shell(rack: Rack, node: int, text: str) -> None:
    """Run a shell text on a node. Raises BenchError when it fails."""
    rack.store(1).mkdir(parents=True, exist_ok=True)
    wait_for([rack.on(node, "sh", "-ec", text)])


def by_stream(sending: str, taking: str) -> Transfer:
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


def by_shell(text: str) -> Transfer:
    """Return a command that runs in the folder of node 0; TARGET is the one of node 1."""
    return lambda rack: shell(rack, 0, f"cd {rack.store(0)}; " + text.replace("TARGET", f"{rack.store(1)}"))


OVER_A_HOP: dict[str, Transfer] = {
    "sparkrack": by_chain,
    "rsync": from_first(rsync, parallel=False),
    "scp": from_first(scp, parallel=False),
    "`ssh tar c` to `tar x`": by_stream("tar cf - w*", "tar xf -"),
}
FLOORS: dict[str, Transfer] = {
    "ssh, dropped (`cat` to `/dev/null`)": by_stream("cat w*", "cat >/dev/null"),
    "TCP, dropped": by_tcp,
    "copy in memory (`cp`)": by_shell("cp w* TARGET"),
    "sha256 (Python)": by_shell(f"{sys.executable} -c '{DIGEST}' w*"),
}
