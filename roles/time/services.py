"""The daemons that set the clock, as services: which files they read, and how."""

from __future__ import annotations

from core.ops.managed_service import ManagedService, Reads
from roles.time import desired

TIMESYNCD = ManagedService(None, (desired.TIMESYNCD,), (desired.DROPIN,))
"""It has no reload. Its running servers show what it has read."""
CHRONY = ManagedService(None, (desired.CHRONY,), (desired.SOURCES,), Reads.RELOAD, reload="chronyc reload sources")
"""A restart would lose what it has measured of the clock."""
SERVICES = (TIMESYNCD, CHRONY)
