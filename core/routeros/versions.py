"""RouterOS versions as numbers."""

from __future__ import annotations

import re

from core.routeros.menus import Release

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?((?:alpha|beta|rc)\d*)?(?:[ _(].*)?")


def release(text: str) -> Release | None:
    """ "7.23.7 (long-term)" as (7, 23, 7, 0), "7.24rc4 (testing)" as (7, 24, 0, -1); None for what is no
    version."""
    found = _VERSION.fullmatch(text)
    if not found:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0), -1 if found[4] else 0
