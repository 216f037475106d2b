"""Flags in rows of a switch. Pure."""

from __future__ import annotations

from core.routeros.errors import UnreadableError
from core.routeros.menus import Menu, Row
from core.routeros.values import ValueKind, canonical


def is_yes(row: Row, name: str, default: str = "no") -> bool:
    """Return whether a flag is yes. A text that is neither yes nor no is not."""
    try:
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"
    except ValueError:
        return False


def read_flag(menu: Menu, row: Row, name: str, default: str = "no") -> bool:
    """Return whether a flag is yes. Raises UnreadableError for a text that is neither yes nor no."""
    try:
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"
    except ValueError as fault:
        raise UnreadableError(f"{menu.path} {name}: {fault}") from None
