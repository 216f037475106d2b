"""The units of this role, as services."""

from __future__ import annotations

from core.model import CONTAINER_SLICE
from core.ops.managed_service import ManagedService, Reads
from roles.memory import cgroups, container_slice, daemon_protection, memory_guard

CEILING = ManagedService("memory-ceiling", (CONTAINER_SLICE,), (container_slice.PATH,), Reads.NOTHING)
"""A restart would end all containers; systemd sets new limits live."""
PROTECTION = ManagedService("memory-protect", (), daemon_protection.PATHS, Reads.NOTHING)
"""Drop-ins of daemons that are not restarted: systemd sets what it reads live."""
GUARD = ManagedService("memory-guard", (cgroups.GUARD,), (memory_guard.SCRIPT, memory_guard.UNIT))
SERVICES = (CEILING, PROTECTION, GUARD)
