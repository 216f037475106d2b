"""Fabric: every cabled half of a ConnectX-7 port has its address and MTU, and reaches its peers, also after a reboot.

One netplan file of ours, mode 600, holds both halves of each cabled port; when the rack has VLANs, the addresses are
on a tagged VLAN interface on each half, `fabric0` and `fabric1`, and the halves themselves have none. No other netplan
file is touched, and the management interface is in none of ours. A change is tried in /run, which a reboot empties; the
node takes it back by itself after a while unless the operator's machine, through a new connection, has seen management
and fabric work. Only then the file goes to /etc. Nodes change one at a time, and the first failure stops the run.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Fabric",
    promise="address and MTU on both halves of each cabled port, also after a reboot",
    proof="`ip`, `netplan get`, unfragmented echoes of full size on every pair and half",
    risky=True,
    links=True,
    adopts_in_place=True,
)
