"""The service of this role: a unit for each interface, of one template."""

from __future__ import annotations

from core.hardware import gb10
from core.ops.managed_service import ManagedService, Reads
from roles.lossless import boot_unit, desired

LOSSLESS = ManagedService(
    None,
    tuple(map(boot_unit.instance, sorted(gb10.INTERFACES))),
    # The unit names the script, so that is written first.
    (desired.SCRIPT, desired.UNIT),
    Reads.NOTHING,
)
"""The settings of the interface show what a unit has read: it is restarted where they differ."""
SERVICES = (LOSSLESS,)
