"""The services of this role: which files they have, and how they read them."""

from __future__ import annotations

from core.ops.managed_service import ManagedService, Reads
from roles.watch import desired, node_metrics, switch_reader


def _of_package(package: str, *paths: str) -> ManagedService:
    """Return the service of a package, whose arguments are in a drop-in; it reads the files while it runs."""
    reads = Reads.RELOAD if paths else Reads.RESTART
    return ManagedService(f"watch-{package}", (desired.unit(package),), (desired.dropin(package), *paths), reads)


EXPORTER = _of_package(desired.EXPORTER)
PROMETHEUS = _of_package(desired.PROMETHEUS, desired.RULES, desired.CONFIG)
ALERTMANAGER = _of_package(desired.ALERTMANAGER, desired.NOTIFICATIONS)
NODE_METRICS = ManagedService(
    "watch-node-metrics", (node_metrics.TIMER,), node_metrics.PATHS, starts=(node_metrics.SERVICE,)
)
SWITCH_READER = ManagedService(
    "watch-switch-reader",
    (switch_reader.TIMER,),
    (*switch_reader.FILES, switch_reader.PASSWORDS),
    starts=(switch_reader.SERVICE,),
    leftovers=(switch_reader.METRICS,),
)
SERVICES = (EXPORTER, PROMETHEUS, ALERTMANAGER, NODE_METRICS, SWITCH_READER)
