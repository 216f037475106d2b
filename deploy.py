"""Bring the rack to its declared state. A table of contents: what is done is written in the roles and in switch/."""

from pyinfra.context import host

from roles.access.apply import apply as access
from roles.docker.apply import apply as docker
from roles.driver.apply import apply as driver
from roles.fabric.apply import apply as fabric
from roles.images.apply import apply as images
from roles.lossless.apply import apply as lossless
from roles.memory.apply import apply as memory
from roles.preflight.apply import apart
from roles.preflight.apply import apply as preflight
from roles.rdma.apply import apply as rdma
from switch.apply import apply as switch

# One literal call a line: pyinfra tells operations apart by their line and orders them by it. First every node is
# looked at. Then the switch, since changing it takes links down, and the fabric of a node is proven over them. Keys and
# holds come before anything that installs, the ceiling of the containers before their engine, the network before what
# is spread over it.
# Without the head node the run would not see its lock; `sparkrack apply` holds that itself and leaves this out.
apart(rack=host.data.rack)
if "nodes" in host.groups:
    preflight(rack=host.data.rack, node=host.data.node)
if "switches" in host.groups:
    switch(rack=host.data.rack, switch=host.data.switch)
if "nodes" in host.groups:
    kept = host.data.rack.keeps
    if kept("access"):
        access(rack=host.data.rack, node=host.data.node)
    if kept("driver"):
        driver(rack=host.data.rack, node=host.data.node)
    if kept("memory"):
        memory(rack=host.data.rack, node=host.data.node)
    if kept("docker"):
        docker(rack=host.data.rack, node=host.data.node)
    if kept("lossless"):
        lossless(rack=host.data.rack, node=host.data.node)
    if kept("fabric"):
        fabric(rack=host.data.rack, node=host.data.node)
    if kept("rdma"):
        rdma(rack=host.data.rack, node=host.data.node)
    if kept("images"):
        images(rack=host.data.rack, node=host.data.node)
