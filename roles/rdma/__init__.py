"""RDMA: multi-node programs find the fabric and may use it.

Every node has the environment that NCCL, Gloo and UCX need, derived from the cables (which ConnectX-7 devices, which
interface for other traffic, which node is the head), as one file for services, containers and shells; no line of
/etc/nccl.conf disables RDMA; memory may be pinned without limit; and each half of a port answers only for its own
address. The index of an address among a device's GIDs differs between hosts and boots, so it is never stored: a program
on the node prints it at a launch. The role cannot make a program read the environment, especially not in a container;
and the speed is only measured (`sparkrack verify --bandwidth`), not corrected.
"""

from __future__ import annotations

from core.model.role import Role
from roles.rdma.options import RdmaOptions, check_sockets

ROLE = Role(
    __name__,
    title="RDMA",
    promise=(
        "the environment of NCCL and similar libraries from the cables, locked memory, ARP settings for two "
        "halves in one host, no file that disables RDMA"
    ),
    proof=(
        "the environment of a login and of a service; with `--bandwidth`, `ib_write_bw` on every half and "
        "[the meaning of its result](docs/runbooks/bandwidth.md)"
    ),
    options=RdmaOptions,
    rules=check_sockets,
)
