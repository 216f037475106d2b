"""Values of options of an engine that are JSON in a text. Pure."""

from __future__ import annotations

import json


def structured_value(value: object) -> object:
    """Return a text that is a JSON object or a JSON list as one; other values as they are."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found
