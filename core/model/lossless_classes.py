"""Values of lossless RoCE that switch and nodes share.

Source: MikroTik manual, 'Quality of Service' (RoCE on CRS8xx); an eight-node guide with a CRS804 uses the same on the
nodes (reported).
"""

ROCE_DSCP = 26
"""DSCP of RDMA packets."""

ROCE_TRAFFIC_CLASS = ROCE_DSCP << 2 | 2
"""Traffic class field of their IP header: the DSCP, and ECN-capable transport in the two bits below it."""

ROCE_CLASS = 3
"""Their traffic class on the switch and their priority on the nodes; the only lossless one."""

CNP_DSCP = 48
"""DSCP of congestion notification packets."""

CNP_CLASS = 6
"""Their traffic class: it goes before all others."""
