"""The systemd units of the gateway, as services."""

from __future__ import annotations

from core.ops.managed_service import ManagedService, Reads
from serving import gateway as gateway
from serving import gateway_router as gateway_router

GATEWAY = ManagedService(
    "gateway",
    (gateway.SERVICE,),
    gateway.PATHS,
    Reads.RELOAD,
    # A configuration that nginx refuses leaves its processes as they are, and is not restarted into.
    reload=f"systemctl reload-or-restart {gateway.SERVICE}",
    after=f"rm -rf {gateway.OLD_CACHE}",
    leftovers=(gateway.INSTALLING,),
)
"""nginx, which keeps the requests that run over a reload."""
ROUTER = ManagedService("gateway-router", (gateway_router.SERVICE,), gateway_router.PATHS)
"""A restart ends no stream: no answer of an engine passes it."""
SERVICES = (GATEWAY, ROUTER)
