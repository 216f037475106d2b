"""Images: every node has the images of rack.yaml, with the same bytes, compared by image ID.

The content of a tag is read from its registry once, and kept in `rack.lock.json` beside rack.yaml. One node pulls each
image from a registry; the others copy it from a node that has it, over the fabric where they share one, and each node
that has it serves others. A transfer continues without the operator's machine, and the next run waits for it. The role
does not remove an image, log in to a registry, or check the image of a running container.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Images",
    promise=(
        "the declared images, the same bytes on all nodes: pulled once, copied over the fabric, pinned in a lock file"
    ),
    proof="`docker image inspect` on every node",
    opt_in=True,
    spreads=True,
    alone=False,
)
