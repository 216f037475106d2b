"""The roles that a verification checks, and the files of their checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from core.model.role import role_named, roles
from core.util.project_files import PACKAGES

CHECKED_ROLES = tuple(role.key for role in sorted(roles(), key=lambda role: role.machine))
"""The roles that have checks, in the order of the table's rows: nodes first."""


def verify_files(keys: Iterable[str] = CHECKED_ROLES) -> list[Path]:
    """The verify file of each role."""
    return [PACKAGES / role_named(key).verify_file for key in keys]
