"""Time intervals as RouterOS takes and prints them: ``5m``, ``1d2h``, ``00:05:00``, ``100ms``."""

from __future__ import annotations

import re

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+)(ms|[wdhms])")
_CLOCK = re.compile(r"(?:(\d+)d)?(\d{1,4}):(\d{2})(?::(\d{2}))?(?:\.\d+)?")


def seconds(text: str) -> float:
    """Parse an interval to seconds; a bare number is seconds. Raises ValueError for any other text."""
    if text.isascii() and text.isdigit():
        return float(text)
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return float(days * 86400 + hours * 3600 + minutes * 60 + rest)
    if not text or _PART.sub("", text):
        raise ValueError(f"{text!r} is not a time interval")
    return sum(int(n) / 1000 if unit == "ms" else int(n) * _UNITS[unit] for n, unit in _PART.findall(text))


def spell(value: float) -> str:
    """Print seconds the way the API does: ``5m``, ``1d2h``, ``0s``."""
    whole, thousandths = divmod(round(value * 1000), 1000)
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    if thousandths:
        parts.append(f"{thousandths}ms")
    return "".join(parts) or "0s"
