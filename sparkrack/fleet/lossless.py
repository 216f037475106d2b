"""The figures of lossless RoCE that switch and nodes must agree on, said once.

Source: MikroTik manual, 'Quality of Service' (RoCE on CRS8xx); an eight-node guide with a CRS804 uses the
same on the nodes (reported).
"""

ROCE_DSCP = 26
"""How RDMA packets are marked."""

ROCE_CLASS = 3
"""Their traffic class on the switch and their priority on the nodes; the only lossless one."""

CNP_DSCP = 48
"""How congestion notification packets are marked."""

CNP_CLASS = 6
"""Their traffic class: it goes before all others."""
