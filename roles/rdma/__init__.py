"""RDMA: what spans nodes finds the fabric and may use it.

Every node has the environment that NCCL, Gloo and UCX need, worked out from the cables (which ConnectX-7 devices, which
interface for the rest, who is the head), as one file for services, containers and shells; no line of /etc/nccl.conf
turns RDMA off; memory may be pinned without limit; and each half of a port answers only for its own address. The place
of an address among a device's GIDs differs between hosts and boots, so it is never written down: a program on the node
tells it when something is started. What this role cannot do: make a program read the environment, least of all one in a
container; and the speed is only ever measured (`sparkrack verify --bandwidth`), not repaired.
"""
