"""Take the pause and RoCE settings off a node; an interface keeps them until its driver is loaded again."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.lossless import ROLE, desired

_UNITS = desired.TEMPLATE.replace("@", "@*")

TRACES = Traces(
    ROLE.key,
    own=(desired.SCRIPT, desired.UNIT, f"/etc/systemd/system/*.wants/{_UNITS}"),
    units=(_UNITS,),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the unit and its script."""
    take_off(name="Take the settings for lossless links off", traces=TRACES, _serial=True)
