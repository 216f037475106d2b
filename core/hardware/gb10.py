"""A GB10 node (DGX Spark and the machines of other makers on the same board): ports, halves, speeds and memory.

The names are those of DGX OS; they come from where the two functions of a port are on PCIe.
"""

from __future__ import annotations

PORTS = (0, 1)
"""The cages of a node; 0 is the one next to the RJ45."""

PORT_GBPS = 200
"""The most a port carries, in Gb/s: its ConnectX-7 has two PCIe Gen5 x4 halves per cage."""

HALF_GBPS = 100
"""A link of this speed (Gb/s) is filled by one half of a port, which carries about 109: both would only share it
(49 and 49 measured, one site). A faster one needs both."""

MEMORY_MIB = 128 * 1024
"""The memory that processor and GPU share."""

# claim: fabric.interface-names
_DOMAINS = (("0000", "enp1"), ("0002", "enP2p1"))
"""The PCIe domain of each half, and what the names of its interfaces begin with."""


def half_interface(port: int, half: int) -> str:
    """The interface of a half of a port, "enp1s0f1np1" or "enP2p1s0f1np1"."""
    return f"{_DOMAINS[half][1]}s0f{port}np{port}"


def half_device(port: int, half: int) -> str:
    """The RDMA device of a half of a port as DGX OS names it, "rocep1s0f1" or "roceP2p1s0f1"."""
    return "roce" + half_interface(port, half).removeprefix("en").rsplit("np", 1)[0]


def half_function(port: int, half: int) -> str:
    """The PCIe function of a half of a port, "0002:01:00.1"."""
    return f"{_DOMAINS[half][0]}:01:00.{port}"


HALVES = {half_function(port, half): (port, half) for half in range(len(_DOMAINS)) for port in PORTS}
"""Port and half by PCIe function."""

INTERFACES = frozenset(half_interface(port, half) for port, half in HALVES.values())
"""The four interfaces of a node's two ConnectX-7 ports."""

SYSFS_INTERFACES = " ".join(f"/sys/class/net/{start}s0f[01]np[01]" for _, start in _DOMAINS)
"""The folders of these interfaces as patterns of a shell, by half."""
