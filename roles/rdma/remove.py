"""Take the environment and the settings for RDMA off a node."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off, without_lines
from roles.rdma import ROLE, desired
from roles.rdma.facts import OURS

TRACES = Traces(
    ROLE.key,
    own=OURS,
    edited={desired.NCCL_CONF: without_lines(lambda line: line.startswith(desired.OFF))},
    sysctls=r"net\.ipv4\.conf\.[^ ]*\.arp_(ignore|announce)",
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the environment, the limit of pinned memory and the ARP settings."""
    take_off(name="Take the settings for RDMA off", traces=TRACES, _serial=True)
