"""Bring a node's time servers and time zone to the state in `desired`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util.event import value_change
from roles.time import ROLE
from roles.time.facts import TimeFacts
from roles.time.options import TimeOptions


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Configure the time daemon and the time zone; nothing without a declaration.

    Does not wait until the clock is synchronized: verify checks that.
    """
    if rack.declared(TimeOptions) is None:
        return
    synchronize(name="Synchronize the clock with the declared servers", rack=rack)
    set_time_zone(name="Set the declared time zone", rack=rack)


@managed_operation("time", TimeFacts)
def synchronize(facts: TimeFacts) -> Changeset:
    """Write the servers to the daemon's own folder; start the daemon, now and at every boot."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    reasons = {facts.unit: facts.live_difference} if facts.live_difference else {}
    changes = facts.service.differences(facts.state, reasons)
    return changes.changeset("the clock is set from the declared servers", facts.warnings)


@managed_operation("time", TimeFacts)
def set_time_zone(facts: TimeFacts) -> Changeset:
    """Set the time zone; programs that run keep the old one until they are restarted."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    zone = facts.rack.options(TimeOptions).time_zone
    if zone is None or not facts.zone_differs:
        return Changeset(in_sync_reason="the time zone is left alone" if zone is None else f"the time zone is {zone}")
    # timedated remembers the zone for 30 s and does nothing for one that it takes to be set already.
    command = sudo_script(f"systemctl stop systemd-timedated.service; timedatectl set-timezone {quote(zone)}")
    return Changeset(events=(value_change("time zone", facts.zone, zone),), commands=(command,))
