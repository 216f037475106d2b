"""Let a node upgrade itself again: masks, holds and settings of apt go. Driver and kernel stay as they are."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from core.ops.shell import quote
from roles.driver import ROLE, desired, upgrade_blockers

_TIMERS = quote(
    *(name for name in upgrade_blockers.SELF_UPGRADING if name.endswith(".timer")), "unattended-upgrades.service"
)

TRACES = Traces(
    ROLE.key,
    own=(upgrade_blockers.CONF,),
    masks=upgrade_blockers.SELF_UPGRADING,
    holds=desired.HELD,
    # Timers that are enabled run again, as after a boot; what would upgrade the node at once waits for that.
    after=(
        "systemctl daemon-reload; systemctl list-unit-files --no-legend --no-pager --state=enabled "
        f'{_TIMERS} | while read -r u _; do systemctl start "$u" < /dev/null; done'
    ),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove what keeps the node from upgrading itself."""
    take_off(name="Let the node upgrade itself again", traces=TRACES, _serial=True)
