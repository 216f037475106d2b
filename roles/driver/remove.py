"""Let a node upgrade itself again: masks, holds and settings of apt go. Driver and kernel stay as they are."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.driver import ROLE, desired, upgrade_blockers

TRACES = Traces(
    ROLE.key,
    own=(upgrade_blockers.CONF,),
    masks=upgrade_blockers.SELF_UPGRADING,
    holds=desired.HELD,
    # What is enabled runs again, as after a boot.
    after=(
        "systemctl daemon-reload; for u in apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service "
        'fwupd-refresh.timer; do if systemctl is-enabled --quiet "$u" 2> /dev/null; then systemctl start "$u"; fi; done'
    ),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove what keeps the node from upgrading itself."""
    take_off(name="Let the node upgrade itself again", traces=TRACES, _serial=True)
