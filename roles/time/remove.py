"""Take the time servers and the time zone of the rack off a node."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.time import ROLE, desired
from roles.time.options import TimeOptions

_ALIASES = ("dbus-org.freedesktop.timesync1.service", "chronyd.service")
_LINKS = tuple(f"/etc/systemd/system/{name}" for name in (*(f"*.wants/{unit}" for unit in desired.MANAGED), *_ALIASES))
_ZONE = ("/etc/localtime", "/etc/timezone")
_RESTART = (
    f"for u in {' '.join(desired.MANAGED)}; do if systemctl is-active --quiet $u; then "
    "if systemctl is-enabled --quiet $u; then systemctl restart $u; else systemctl stop $u; fi; fi; done; "
    "systemctl stop systemd-timedated.service"
)

TRACES = Traces(ROLE.key, own=desired.PATHS, links=_LINKS, after=_RESTART).register()
TRACES_WITH_ZONE = Traces("time-zone", links=_ZONE, after=_RESTART).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the servers, and bring back the time zone where the rack has declared one."""
    options = rack.declared(TimeOptions)
    take_off(name="Take the time servers off", traces=TRACES, _serial=True)
    if options is not None and options.time_zone is not None:
        take_off(name="Bring back the time zone", traces=TRACES_WITH_ZONE, _serial=True)
