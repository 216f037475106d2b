"""Time: a node takes its time from the servers that rack.yaml declares, and has the declared time zone.

Clocks that differ make TLS fail, mix up logs of several nodes and end jobs that compare times. The role configures the
daemon that the node has, systemd-timesyncd or chrony. It never installs, removes or replaces one: with two daemons,
with none, or with ntpd it refuses. Without the section `time` it does nothing; `preflight.clock_skew` compares the
clocks of the nodes in any case.
"""

from __future__ import annotations

from core.model.role import Role
from roles.time.options import TimeOptions

ROLE = Role(
    __name__,
    title="Time",
    promise=(
        "the declared time servers in systemd-timesyncd or chrony, which runs and starts at boot; the declared time"
        " zone"
    ),
    proof="`timedatectl`, `chronyc`, `systemctl`",
    options=TimeOptions,
    opt_in=True,
)
