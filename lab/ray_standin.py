#!/usr/bin/python3
"""Stand-in for `ray start`, as far as vLLM on Ray needs it: nodes join a head, which gives them to a driver.

    ray start --head --node-ip-address=A --port=P ...
    ray start --block --address=A:P --node-ip-address=B ...

It is the program `ray` in the lab's images of served units; the driver is engine_standin.py. With --head it ends when
its own process in the background listens. What Ray 2.60 was measured to do:

- SIGTERM is obeyed after RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S (30), also when the head is gone;
- a node that loses its head ends with 1, STANDIN_RAY_LOST_SECONDS (67) later.

A driver that asks for more nodes than have joined waits. A node that is gone ends the connection of the driver at its
next step. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# In an image the packages stand beside this program, in the repository above it.
sys.path.insert(0, str(FOLDER if (FOLDER / "lab").is_dir() else FOLDER.parent))
from lab import rdma_standin  # noqa: E402

ADDRESS = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster")  # noqa: S108 - as in Ray
JOIN_SECONDS = float(os.environ.get("STANDIN_RAY_JOIN_SECONDS", "60"))
"""For how long a node tries to reach its head."""
LOST_SECONDS = float(os.environ.get("STANDIN_RAY_LOST_SECONDS", "67"))
STEP_SECONDS = float(os.environ.get("STANDIN_EXECUTE_SECONDS", "300"))
DRAIN_SECONDS = float(os.environ.get("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "30"))


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ray", allow_abbrev=False)
    parser.add_argument("verb", choices=["start", "listen"])
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--node-ip-address", required=True)
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--address")
    parser.add_argument("--include-dashboard", choices=["true", "false"])
    parser.add_argument("--disable-usage-stats", action="store_true")
    given = parser.parse_args(words)
    if given.head == bool(given.address):
        parser.error("one of --head and --address")
    return given


class RayHead:
    """The nodes that have joined, and the driver that uses them."""

    def __init__(self) -> None:
        self.nodes: list[socket.socket] = []
        self.joined = threading.Condition()

    def serve(self, listener: socket.socket) -> None:
        """Take nodes and drivers."""
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=self.take, args=(connection,), daemon=True).start()

    def take(self, connection: socket.socket) -> None:
        """Read who it is: `node`, or `driver` with the number of nodes that it needs, the head's included."""
        with contextlib.suppress(OSError, ValueError):
            kind, _, count = connection.makefile().readline().strip().partition(" ")
            if kind == "node":
                with self.joined:
                    self.nodes.append(connection)
                    self.joined.notify_all()
            elif kind == "driver":
                self.drive(connection, int(count) - 1)

    def drive(self, driver: socket.socket, others: int) -> None:
        """Wait for the other nodes, then take the steps of the driver to all of them."""
        with self.joined:
            self.joined.wait_for(lambda: len(self.nodes) >= others)
        nodes = self.nodes[:others]
        driver.sendall(b"r")
        with contextlib.suppress(OSError):
            while driver.recv(1):
                for node in nodes:
                    node.settimeout(STEP_SECONDS)
                    node.sendall(b"s")
                if any(node.recv(1) != b"d" for node in nodes):
                    break
                driver.sendall(b"d")
        driver.close()


def head(given: argparse.Namespace) -> int:
    """Start the head in the background, and end when it listens."""
    words = [sys.executable, __file__, "listen", "--head", f"--node-ip-address={given.node_ip_address}"]
    started = subprocess.Popen([*words, f"--port={given.port}"], stdout=subprocess.PIPE, text=True)
    assert started.stdout  # noqa: S101 - a pipe
    return 0 if started.stdout.readline() == "listens\n" else 1


def listen(given: argparse.Namespace) -> None:
    """Be the head."""
    listener = socket.create_server((given.node_ip_address, given.port))
    ADDRESS.parent.mkdir(parents=True, exist_ok=True)
    ADDRESS.write_text(f"{given.node_ip_address}:{given.port}")
    print("listens", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    RayHead().serve(listener)


def join(given: argparse.Namespace) -> int:
    """Be a node: join the head, and answer its steps until it is gone."""
    signal.signal(signal.SIGTERM, lambda *_: stop())
    address, _, port = given.address.rpartition(":")
    until = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            connection = socket.create_connection((address, int(port)), timeout=2)
            break
        except OSError as error:
            if time.monotonic() > until:
                print(f"ray: no head at {given.address}: {error}", file=sys.stderr)
                return 1
            time.sleep(0.2)
    connection.settimeout(None)
    connection.sendall(b"node\n")
    print(f"joined {given.address}", flush=True)
    with contextlib.suppress(OSError):
        while connection.recv(1):
            rdma_standin.move()
            connection.sendall(b"d")
    time.sleep(LOST_SECONDS)
    print("ray: the head is gone", file=sys.stderr)
    return 1


def stop() -> None:
    """Drain, then end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(DRAIN_SECONDS)
    os._exit(0)


def main(words: list[str]) -> int:
    given = arguments(words)
    if given.verb == "listen":
        listen(given)
    return head(given) if given.head else join(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
