"""What runs of the images role are about: a rack, its images, and what can be asked of it afterwards."""

from __future__ import annotations

from sparkrack.fleet import pins
from sparkrack.fleet.pins import Pin
from tests.unit.fleet.racks import SUBNETS, node, switch

from .dockers import Desk, World

A, B, C, D = (f"sha256:{digit * 64}" for digit in "abcd")
X, PINNED = "scitrera/x:1", f"scitrera/x@{D}"
CAGES = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-2": "4x100G"}


def rack(size: int = 2, *images: str) -> str:
    nodes = "".join(node(f"n{n}", n, {1: f"sw/qsfp56-dd-{n // 4 + 1}-{n % 4 * 2 + 1}"}) for n in range(size))
    declared = ", ".join(f"'{image}'" for image in images or (X,))
    return (
        f"rack: some\naccess: {{user: ops, key: k, known_hosts: h}}\nnodes:\n{nodes}"
        f"switches:\n{switch('sw', 0, CAGES)}{SUBNETS}images: [{declared}]\n"
    )


def lock(desk: Desk) -> dict[str, Pin]:
    return pins.read(desk.folder / "rack.lock.json")


def write(desk: Desk, **found: Pin) -> None:
    pins.write(desk.folder / "rack.lock.json", {X: found["x"]})


def fetched(world: World) -> dict[str, list[str]]:
    return {name: docker.fetched for name, docker in world.dockers.items() if docker.fetched}


def all_have(world: World, identity: str, name: str = X) -> bool:
    return all(docker.find(name) == identity for docker in world.dockers.values())
