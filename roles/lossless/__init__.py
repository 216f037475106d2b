"""Lossless: what a node does about full buffers is what its switch does, on both halves of each cabled port.

`switches.<name>.lossless` in rack.yaml is one intent for both ends of a link. `pause`: link pause on, priority flow
control off. `roce`: link pause off; RDMA is marked DSCP 26 and goes to priority 3, the only lossless one, which
answers marks of congestion; notifications go out as DSCP 48. `none`: what an earlier run has set is taken back, and a
node where there was none is left alone. The driver forgets all of it, so a unit of ours sets it whenever an interface
appears: at boot, and when its driver is loaded anew. What this role cannot do: mark queues that are made without the
kernel (DevX); those take NCCL_IB_TC=106.
"""
