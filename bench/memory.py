"""Of the role memory what a target without systemd, and with its machine's kernel, can have."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from roles.memory.apply import keep_free
from roles.memory.arm import install
from sparkrack.fleet import Node, Rack


@deploy("Memory")
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """The kernel's settings, and the launch step."""
    keep_free(name="Keep memory free for the kernel, live and at boot", rack=rack)
    install(name="Install the step that makes room before a launch", rack=rack)
