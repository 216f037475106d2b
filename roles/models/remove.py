"""Models stay on a node, since they are large: they are named, with the command that removes them."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.model.models import MODEL_STORE
from core.ops.removal import Traces, take_off
from roles.models import ROLE, scripts

TRACES = Traces(
    ROLE.key,
    refuse=(
        f'if [ -d {MODEL_STORE} ] && [ -n "$(ls -A {MODEL_STORE})" ]; then '
        f'echo "note models stay: {MODEL_STORE}, $(du -sh {MODEL_STORE} | cut -f 1)iB; sudo rm -r {MODEL_STORE} '
        'removes them"; fi'
    ),
    units=(f"{scripts.UNIT}*.service",),
    folders=(scripts.FOLDER,),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Name the models that stay; transfers end."""
    take_off(name="Leave the models", traces=TRACES, _serial=True)
