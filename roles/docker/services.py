"""The units of this role, as services: the engine, and what it needs to start."""

from __future__ import annotations

from core.ops.managed_service import ManagedService, Reads
from roles.docker import desired

ENGINE = ManagedService(None, ("docker.service",), (desired.DROPIN,), Reads.NOTHING)
"""A restart can end containers, so it has always a reason of the role; the copy of its daemon.json shows what it runs
with. How it is restarted depends on the node (`scripts.restart`)."""
NEEDED = ManagedService(None, ("docker.socket", "containerd.service"), (), Reads.NOTHING, at_boot=True, static=True)
"""Units that the engine starts: they must not be masked."""
SERVICES = (NEEDED, ENGINE)
