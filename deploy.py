"""Bring the rack to its declared state. A table of contents: what is done is written in the roles and in switch/."""

from pyinfra.context import host

from roles.fabric.apply import apply as fabric
from roles.lossless.apply import apply as lossless
from roles.memory.apply import apply as memory
from switch.apply import apply as switch

# One literal call a line, the switch above the nodes: pyinfra tells operations apart by their line and orders them
# by it. The switch comes first since changing it takes links down, and the fabric of a node is proven over them;
# the lossless role can take links down as well.
if "switches" in host.groups:
    switch(rack=host.data.rack, switch=host.data.switch)
if "nodes" in host.groups:
    memory(rack=host.data.rack, node=host.data.node)
    lossless(rack=host.data.rack, node=host.data.node)
    fabric(rack=host.data.rack, node=host.data.node)
