"""Bring the rack to its declared state. A table of contents: what is done is written in the roles and in switch/."""

from pyinfra.context import host

from roles.access.apply import apply as access
from roles.docker.apply import apply as docker
from roles.driver.apply import apply as driver
from roles.fabric.apply import apply as fabric
from roles.images.apply import apply as images
from roles.lossless.apply import apply as lossless
from roles.memory.apply import apply as memory
from roles.preflight.apply import apply as preflight
from roles.rdma.apply import apply as rdma
from switch.apply import apply as switch

# One literal call a line: pyinfra tells operations apart by their line and orders them by it. First every node is
# looked at. Then the switch, since changing it takes links down, and the fabric of a node is proven over them. Keys and
# holds come before anything that installs, the ceiling of the containers before their engine, the network before what
# is spread over it.
if "nodes" in host.groups:
    preflight(rack=host.data.rack, node=host.data.node)
if "switches" in host.groups:
    switch(rack=host.data.rack, switch=host.data.switch)
if "nodes" in host.groups:
    left_alone = host.data.rack.leave
    if "access" not in left_alone:
        access(rack=host.data.rack, node=host.data.node)
    if "driver" not in left_alone:
        driver(rack=host.data.rack, node=host.data.node)
    if "memory" not in left_alone:
        memory(rack=host.data.rack, node=host.data.node)
    if "docker" not in left_alone:
        docker(rack=host.data.rack, node=host.data.node)
    if "lossless" not in left_alone:
        lossless(rack=host.data.rack, node=host.data.node)
    if "fabric" not in left_alone:
        fabric(rack=host.data.rack, node=host.data.node)
    if "rdma" not in left_alone:
        rdma(rack=host.data.rack, node=host.data.node)
    if "images" not in left_alone:
        images(rack=host.data.rack, node=host.data.node)
