"""Make a node's toy what `desired` says."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import remote_files
from core.ops.announce import file_diff
from core.ops.operation import Changeset, managed_operation

from . import ROLE, desired
from .facts import ToyFacts


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """The file."""
    write_level(name="Write the level", rack=rack)


@managed_operation("toy", ToyFacts)
def write_level(facts: ToyFacts) -> Changeset:
    """Write the file."""
    before, after = facts.reading.content(desired.PATH), desired.content(facts.rack)
    if before == after:
        return Changeset(in_sync_reason="the level is right")
    return Changeset(
        events=(file_diff(desired.PATH, before, after),),
        commands=(remote_files.put(desired.PATH, after, mode="644"),),
    )
