"""Comparison of RouterOS values by meaning: written and printed values differ in spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum


class ValueKind(Enum):
    """Kind of the text of a field."""

    WORD = "word"  # compared literally
    FLAG = "flag"  # yes, true | no, false: `yes` is written, `true` is read back
    COUNT = "count"  # a plain integer
    RATE = "rate"  # bit/s: 200G, 200000000000, 200Gbps; sizes are decimal
    DURATION = "duration"  # 5m, 00:05:00, 1d2h, 90 (seconds)
    LIST = "list"  # comma separated, order without meaning
    POLICY = "policy"  # a list in which "!x" is not granted: read,!write and read mean the same


def visible(text: str) -> str:
    r"""Return `text` for display: bytes that are not UTF-8, kept as surrogates, are written as \xf6."""
    return _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)


def visible_row(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row for display."""
    return {name: visible(value) for name, value in row.items()}


_BYTE = re.compile("[\udc80-\udcff]")
_FLAGS = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kKMGT]?)(?:bps)?")
_SCALE = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_CLOCK = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(\d+):(\d\d):(\d\d)(?:\.(\d{1,3}))?")


def canonical(kind: ValueKind, text: str) -> str:
    """Return one spelling for all texts of `kind` with the same meaning. Raises ValueError if `text` is not of that
    kind.
    """
    match kind:
        case ValueKind.WORD:
            return text
        case ValueKind.FLAG:
            if text not in _FLAGS:
                raise ValueError(f"{text!r} is neither yes nor no")
            return _FLAGS[text]
        case ValueKind.COUNT:
            if not re.fullmatch(r"-?[0-9]+", text):
                raise ValueError(f"{text!r} is not a whole number")
            return str(int(text))
        case ValueKind.RATE:
            return str(bits_per_second(text))
        case ValueKind.DURATION:
            return str(milliseconds(text))
        case ValueKind.LIST:
            return ",".join(_sorted_parts(text))
        case ValueKind.POLICY:
            return ",".join(part for part in _sorted_parts(text) if not part.startswith("!"))


def _sorted_parts(text: str) -> list[str]:
    return sorted(part.strip() for part in text.split(",") if part.strip())


def bits_per_second(text: str) -> int:
    """200G, 200Gbps and 200000000000 are all 2*10**11. ValueError for anything else."""
    found = _RATE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a rate")
    whole, _, fraction = found[1].partition(".")
    scale = _SCALE[found[2]]
    part = int(fraction) * scale / 10 ** len(fraction) if fraction else 0
    if part != int(part):
        raise ValueError(f"{text!r} is not a whole number of bits per second")
    return int(whole) * scale + int(part)


def gbps(rate: str | None) -> float | None:
    """Parse a rate as the switch prints it, in Gbit/s; None for an empty text (`""` while there is no link) or None."""
    try:
        return bits_per_second(rate or "") / 10**9
    except ValueError:
        return None


def milliseconds(text: str) -> int:
    """5m, 00:05:00, 300s and 300 are all 300000. ValueError for anything else."""
    if clock := _CLOCK.fullmatch(text):
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in clock.groups()[:5])
        thousandths = int((clock[6] or "").ljust(3, "0"))
    elif text and (units := _UNITS.fullmatch(text)):
        weeks, days, hours, minutes, seconds, thousandths = (int(part or 0) for part in units.groups())
    elif re.fullmatch(r"[0-9]+", text):
        weeks = days = hours = minutes = thousandths = 0
        seconds = int(text)
    else:
        raise ValueError(f"{text!r} is not a duration")
    hours += 24 * (days + 7 * weeks)
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + thousandths
