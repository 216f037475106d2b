"""Take the watch off a node; the metrics that were collected stay where their packages keep them."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops.removal import Traces, take_off
from roles.watch import ROLE, desired, services

_PACKAGED = tuple(map(desired.unit, desired.PACKAGES))
_PATHS = tuple(path for service in services.SERVICES for path in (*service.paths, *service.leftovers))
_OWN_UNITS = ("sparkrack-node-metrics.*", "sparkrack-switch-reader.*")

TRACES = Traces(
    ROLE.key,
    own=(*_PATHS, *(f"/etc/systemd/system/*.wants/{unit}" for unit in _OWN_UNITS)),
    # `systemctl enable` renames the links of an init script, too.
    links=(*(f"/etc/systemd/system/*.wants/{unit}" for unit in _PACKAGED), "/etc/rc?.d/*prometheus*"),
    units=_OWN_UNITS,
    folders=("/etc/sparkrack/watch",),
    packages=(*desired.PACKAGES, "promtool"),
    after=(
        f"for u in {' '.join(_PACKAGED)}; do "
        "if systemctl is-enabled --quiet $u 2> /dev/null; then systemctl try-restart $u; "
        "else systemctl stop $u 2> /dev/null || true; fi; done"
    ),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Remove the exporters, Prometheus, Alertmanager and their settings."""
    take_off(name="Take the watch off", traces=TRACES, _serial=True)
