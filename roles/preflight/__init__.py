"""Preflight: no node is changed, and no switch before it, unless every node is the machine that rack.yaml means.

It reads all nodes of a run at once and changes nothing. A node is refused for its operating system, architecture,
vendor (by DMI), room on disk, clock, PCIe links of its cabled ConnectX-7 functions, BIOS, a kernel without the
`kho=off` it needs, a host key or machine-id that another node has too, or a driver that cannot do the lossless
traffic its switch is declared to do. What differs between nodes without being wrong (kernel, its command line,
NVIDIA driver, NIC firmware, BIOS, docker engine) is told, by the name of the odd one, as is who holds the dpkg lock.
What this role cannot do: see a link that is slow although its PCIe is right; that takes traffic.
"""
