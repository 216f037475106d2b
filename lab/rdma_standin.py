"""What the stand-ins for engines do in the place of NCCL: they move the counters of RDMA devices when ranks talk.

The devices are those of NCCL_IB_HCA. In the virtual rack the program rdma-counters of the node counts, at an abstract
socket, which a container with the network of its node reaches; elsewhere STANDIN_RDMA is a folder like
/sys/class/infiniband. Without RDMA nothing is moved: NCCL takes sockets then, and does not fail (src/init.cc).
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

COUNTS = "\0sparkrack-lab-rdma"
"""Where rdma-counters of a virtual node takes `DEVICE WORDS`."""
WORDS = 1024
"""Words of four bytes for each step of each rank; a layer's all-reduce is larger."""
FAULTS = Path(os.environ.get("STANDIN_FAULTS", "/nonexistent"))


def network() -> str:
    """Return the network that NCCL names: IB, or Socket where RDMA is turned off, as the fault `sockets` does."""
    off = os.environ.get("NCCL_IB_DISABLE", "0").strip() not in ("", "0") or (FAULTS / "sockets").exists()
    return "Socket" if off or os.environ.get("NCCL_NET", "IB") != "IB" else "IB"


def announce() -> None:
    """Print NCCL's line, where NCCL_DEBUG asks for it (as seen with NCCL 2.28.9)."""
    if os.environ.get("NCCL_DEBUG") in ("INFO", "TRACE"):
        own = os.getpid()
        print(f"{socket.gethostname()}:{own}:{own} [0] NCCL INFO Using network {network()}", flush=True)


def move() -> None:
    """Count one step of a rank at its devices."""
    if network() != "IB":
        return
    for name in os.environ.get("NCCL_IB_HCA", "").lstrip("=").split(","):
        if name:
            _count_words(name)


def _count_words(name: str) -> None:
    folder = os.environ.get("STANDIN_RDMA")
    if folder:
        for counter in ("port_xmit_data", "port_rcv_data"):
            file = Path(folder, name, "ports/1/counters", counter)
            with contextlib.suppress(OSError, ValueError):
                moved = int(file.read_text()) + WORDS
                new = file.with_suffix(f".{os.getpid()}")
                new.write_text(f"{moved}\n")
                new.replace(file)
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(f"{name} {WORDS}".encode(), COUNTS)
