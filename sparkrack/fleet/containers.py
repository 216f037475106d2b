"""What the roles that have to do with containers must agree on."""

from __future__ import annotations

SLICE = "sparkrack.slice"
"""The systemd slice that all containers of a node are in; its MemoryMax bounds their sum, as far as a kernel counts."""
