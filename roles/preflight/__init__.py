"""Preflight: no node is changed, and no switch before it, unless every node is the machine that rack.yaml declares.

It reads all nodes of a run at once and changes nothing. A node is refused for its operating system, architecture,
vendor (by DMI), disk space, clock, PCIe links of its cabled ConnectX-7 functions, BIOS, a kernel without the `kho=off`
it needs, a host key or machine-id that another node has too, or a driver without support for the lossless traffic of
its switch. Allowed differences between nodes (kernel, its command line, NVIDIA driver, NIC firmware, BIOS, docker
engine) are reported with the name of the differing node, and so is the holder of the dpkg lock. The role cannot detect
a link that is slow although its PCIe values are correct; that needs traffic.
"""

from __future__ import annotations

from core.model.role import Role
from roles.preflight.options import PreflightOptions

ROLE = Role(
    __name__,
    title="Preflight",
    promise=(
        "gates before any change, on all nodes at once: model, BIOS, PCIe lanes, disk, clock, `kho=off`, no "
        "two nodes with one identity; names the node that differs from the others"
    ),
    proof="`dmidecode`, `lspci`, `df`, and a comparison of the nodes",
    options=PreflightOptions,
    gate=True,
)
