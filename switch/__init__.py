"""A switch of the rack, from rack.yaml to API sentences and back; core.hardware says what its model has.

Desired state (pure: no pyinfra, no network): `desired` (rack.yaml as rows of menus), `cages`.
Actual state: `core.routeros.reading`, `preconditions` (the declared unit?), `differences` (in the words of rack.yaml),
`health`. Changes: `plan` and `port_changes` (order, and what they disturb), `lockout_risks` (would they cut us off?).
Execution: `transaction` (the steps), `executor` (runs them and reports the state of the switch), `wait_for_links` and
`link_witness` (both ends of a link), `backup`, `restore`; `apply` is the pyinfra operation around it.
Connections, menus and rollback are in `core.routeros`. `verify` checks; `bootstrap` is for a switch in factory state.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Switch",
    promise=(
        "cages split into legs (every breakout of the manual: 4x100G, 2x200G, 8x50G ...), FEC, mtu and l2mtu;"
        " bridge, VLANs, pause or RoCE classes; identity, time, DNS, LLDP, log, SNMP, services, a read-only "
        "user"
    ),
    proof=(
        "REST as that user; the switch's monitor and the node's `ethtool`: a leg passes only when both ends "
        "report it as declared; the leg of each node, by MAC address"
    ),
    machine="switch",
    risky=True,
    links=True,
)
