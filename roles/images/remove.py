"""Images stay on a node, since they are large: they are named, with the command that removes them."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.images import ROLE

TRACES = Traces(
    ROLE.key,
    refuse=(
        "if systemctl is-active --quiet docker.service; then "
        "n=$(docker -H unix:///run/docker.sock image ls -q | sort -u | wc -l); "
        '[ "$n" = 0 ] || echo "note images stay: $n in docker, see docker system df; docker image prune --all removes '
        'those that no container has"; fi'
    ),
    after="rm -rf /run/sparkrack-images /var/tmp/sparkrack-images",
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Name the images that stay."""
    take_off(name="Leave the images", traces=TRACES, _serial=True)
