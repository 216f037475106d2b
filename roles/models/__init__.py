"""Models: every node has the weights of the models of rack.yaml in /srv/models, with the same bytes.

The files of a model are listed once, with sizes and hashes, and kept in `rack.lock.json` beside rack.yaml. One node
fetches them from the hub, or receives them from the operator's machine; the others copy them from a node that has them,
over the fabric, and each passes on the bytes of a file while they come. A transfer continues without the operator's
machine, and every file continues where it was interrupted. The role removes nothing.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Models",
    promise=(
        "the weights of the declared models, the same bytes on all nodes: fetched once, copied over the fabric, "
        "pinned in a lock file"
    ),
    proof="`sha256sum` of every file on every node",
    opt_in=True,
    spreads=True,
    alone=False,
)
