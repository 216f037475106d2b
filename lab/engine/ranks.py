"""The worker process of each node: the rank itself, which meets the others and takes steps with them."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from lab import rdma_standin

EXECUTE_SECONDS = float(os.environ.get("STANDIN_EXECUTE_SECONDS", "300"))
RAY = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster")  # noqa: S108 - as in Ray
"""The file in which the head of Ray has its address."""


def head_worker(given: argparse.Namespace) -> None:
    """Meet all ranks, then take `step` from standard input: one round trip to every rank, then `ok` or `error`."""
    ranks: list[socket.socket] = []
    with socket.create_server((given.master_addr, given.master_port)) as listener:
        until = time.monotonic() + given.distributed_timeout_seconds
        while len(ranks) < given.nnodes - 1:
            listener.settimeout(max(0.01, until - time.monotonic()))
            ranks.append(listener.accept()[0])
    print("ready", flush=True)
    take_steps(ranks)


def ray_worker(given: argparse.Namespace) -> None:
    """Ask Ray for a node for each rank, and then take steps by way of its head, which asks all nodes."""
    address, _, port = RAY.read_text().rpartition(":")
    head = socket.create_connection((address, int(port)))
    nodes = given.tensor_parallel_size * given.pipeline_parallel_size
    head.sendall(f"driver {nodes}\n".encode())
    head.settimeout(given.distributed_timeout_seconds)
    if head.recv(1) != b"r":
        sys.exit(1)
    print("ready", flush=True)
    take_steps([head])


def take_steps(ranks: list[socket.socket]) -> None:
    """Answer each line of standard input when every rank has answered."""
    for _ in sys.stdin:
        try:
            for rank in ranks:
                rank.settimeout(EXECUTE_SECONDS)
                rank.sendall(b"s")
            for rank in ranks:
                if rank.recv(1) != b"d":
                    raise ConnectionResetError
            rdma_standin.move()
        except OSError:
            print("error", flush=True)
        else:
            print("ok", flush=True)


def other_worker(given: argparse.Namespace) -> None:
    """Meet the head, answer its steps, and stay when it is gone."""
    until = time.monotonic() + given.distributed_timeout_seconds
    while True:
        try:
            head = socket.create_connection((given.master_addr, given.master_port), timeout=2)
            break
        except OSError:
            if time.monotonic() > until:
                sys.exit(1)
            time.sleep(0.1)
    print("ready", flush=True)
    head.settimeout(None)
    with contextlib.suppress(OSError):
        while head.recv(1):
            rdma_standin.move()
            head.sendall(b"d")
    while True:
        time.sleep(3600)
