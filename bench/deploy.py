"""The desired state of the bench by the roles themselves: what of them a target without systemd can have."""

from pyinfra.context import host

from bench.memory import apply as memory
from roles.access.apply import apply as access
from roles.rdma.apply import apply as rdma

if "nodes" in host.groups:
    access(rack=host.data.rack, node=host.data.node)
    memory(rack=host.data.rack, node=host.data.node)
    rdma(rack=host.data.rack, node=host.data.node)
