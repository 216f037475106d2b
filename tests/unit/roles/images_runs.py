"""Runs of the images role: a rack, its images, and their state afterwards."""

from __future__ import annotations

from core.model import image_lock
from core.model.image_lock import ImageNccl, Pin
from tests.unit.model.racks import SUBNETS, node, switch
from tests.unit.roles.dockers import Workdir, World

A, B, C, D = (f"sha256:{digit * 64}" for digit in "abcd")
X, PINNED = "scitrera/x:1", f"scitrera/x@{D}"
KNOWN = ImageNccl("2.30.7", "system", ())
"""What each image of these nodes has of NCCL."""
CAGES = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-2": "4x100G"}


def rack(size: int = 2, *images: str) -> str:
    nodes = "".join(node(f"n{n}", n, {1: f"sw/qsfp56-dd-{n // 4 + 1}-{n % 4 * 2 + 1}"}) for n in range(size))
    declared = ", ".join(f"'{image}'" for image in images or (X,))
    return (
        f"rack: some\naccess: {{user: ops, key: k, known_hosts: h}}\nnodes:\n{nodes}"
        f"switches:\n{switch('sw', 0, CAGES)}{SUBNETS}images: [{declared}]\n"
    )


def pin(digest: str | None, identity: str) -> Pin:
    """An image of the lock file, after a node was asked what it has of NCCL."""
    return Pin(digest, identity, KNOWN)


def lock(workdir: Workdir) -> dict[str, Pin]:
    return image_lock.read(workdir.folder / "rack.lock.json")


def write(workdir: Workdir, **found: Pin) -> None:
    image_lock.write(workdir.folder / "rack.lock.json", {X: found["x"]})


def fetched(world: World) -> dict[str, list[str]]:
    return {name: docker.fetched for name, docker in world.dockers.items() if docker.fetched}


def all_have(world: World, identity: str, name: str = X) -> bool:
    return all(docker.find(name) == identity for docker in world.dockers.values())
