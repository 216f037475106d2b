"""The systemd units of the gateway's router, as a service."""

from __future__ import annotations

from core.ops.managed_service import ManagedService
from serving import gateway_router as gateway_router

ROUTER = ManagedService("gateway-router", (gateway_router.SERVICE,), gateway_router.PATHS)
"""A restart ends no stream: no answer of an engine passes it."""
SERVICES = (ROUTER,)
