"""The desired state of the bench by the roles themselves: what of them a target without systemd can have."""

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from core.model import Node, Rack
from core.ops.apply_role import runs
from roles.access.apply import apply as access
from roles.memory import ROLE as MEMORY
from roles.memory.apply import install_memory_gate, keep_free
from roles.rdma.apply import apply as rdma


@deploy(MEMORY.title)
def memory(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """The part of the role memory that works without systemd and with the machine's kernel: the kernel's settings, and
    the launch step.
    """
    keep_free(name="Keep memory free for the kernel, live and at boot", rack=rack)
    install_memory_gate(name="Install the step that makes room before a launch", rack=rack)


if runs("access"):
    access(rack=host.data.rack, node=host.data.node)
if runs("memory"):
    memory(rack=host.data.rack, node=host.data.node)
if runs("rdma"):
    rdma(rack=host.data.rack, node=host.data.node)
