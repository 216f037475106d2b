"""The packages of all roles, in the order of a run; each has a `ROLE`.

First every node is looked at. Then the switch, since changing it takes links down, and the fabric of a node is proven
over them. Keys, the clock and holds come before anything that installs, the ceiling of the containers before their
engine, the network before what is spread over it, images and models before the units that serve them. The watch
comes last: it scrapes what the others brought up.
"""

PACKAGES = (
    "roles.preflight",
    "switch",
    "roles.access",
    "roles.time",
    "roles.driver",
    "roles.memory",
    "roles.blackbox",
    "roles.docker",
    "roles.lossless",
    "roles.fabric",
    "roles.rdma",
    "roles.images",
    "roles.models",
    "serving",
    "roles.watch",
)
