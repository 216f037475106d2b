"""Lossless: flow control of a node as on its switch, on both halves of each cabled port.

`switches.<name>.lossless` in rack.yaml is one setting for both ends of a link. `pause`: link pause on, priority flow
control off. `roce`: link pause off; RDMA is marked DSCP 26 and uses priority 3, the only lossless one, which reacts to
congestion marks; notifications have DSCP 48. `none` and `ecn`: settings of an earlier run are reverted, and a node
without any is not changed. `leave`: switch and nodes stay as they are.

The driver loses all of it, so a unit of ours sets it whenever an interface appears: at boot, and when its driver is
loaded again. The role cannot mark queues that are created without the kernel (DevX); those need NCCL_IB_TC=106.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Lossless",
    promise=(
        "pause, or RoCE's one lossless priority, on both halves as on the switch; live, and again whenever an"
        " interface appears"
    ),
    proof=("`ethtool -a`, `dcb`, the driver's files, `systemctl`"),
    risky=True,
    links=True,
)
