"""Images stay on a node, since they are large: they are named, with the command that removes them."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.images import ROLE, scripts

TRACES = Traces(
    ROLE.key,
    refuse=(
        "if systemctl is-active --quiet docker.service; then "
        "n=$(docker -H unix:///run/docker.sock image ls -q | sort -u | wc -l); "
        '[ "$n" = 0 ] || echo "note images stay: $n in docker, see docker system df; docker image prune --all removes '
        'those that no container has"; fi'
    ),
    units=(f"{scripts.UNIT}*.service",),
    folders=(scripts.FOLDER, scripts.ARCHIVES),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Name the images that stay; transfers end, and what has come of them goes."""
    take_off(name="Leave the images", traces=TRACES, _serial=True)
