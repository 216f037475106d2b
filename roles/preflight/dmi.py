"""Interpretation of DMI strings and versions. Pure."""

from __future__ import annotations

import re
from itertools import zip_longest

MAKERS = {
    "nvidia": "nvidia",
    "asus": "asus|asustek",
    "lenovo": "lenovo",
    "acer": "acer",
    "dell": "dell",
    "gigabyte": "gigabyte|giga-byte",
    "hp": "hp|hewlett-packard",
    "msi": "msi|micro-star",
}
"""The words by which a DMI table names each vendor of rack.yaml."""


# claim: preflight.dmi
def vendor_of(*makers: str) -> str | None:
    """The vendor that DMI names. NVIDIA made the board of every GB10, so any other name goes before it."""
    named = {
        name
        for name, words in MAKERS.items()
        for maker in makers
        if re.search(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", maker.lower())
    }
    partners = named - {"nvidia"}
    if len(partners) == 1:
        return partners.pop()
    return "nvidia" if named == {"nvidia"} else None


# claim: preflight.bios
def older(version: str, floor: str) -> bool:
    """Return whether a BIOS version is below a floor, compared part by part for the length of the floor.

    Parts are divided by `.`, `_` and `-`; parts before the first that begins with a digit are the product's name, so
    "GX10DGX.0105.2026" is 105, 2026 and "5.36_1.2" is 5, 36, 1, 2. A missing part counts as 0. A part with letters
    ("0ACUM023", "S1EKT16A") is compared number by number while its letters are equal. Raises ValueError where they are
    not.
    """
    wanted, parts = _version_parts(floor), _version_parts(version)
    if not wanted:
        raise ValueError(f"{floor!r} in rack.yaml has no numbers")
    if not parts:
        raise ValueError(f"{version!r} has no numbers to compare with {floor}")
    for least, part in zip_longest(wanted, parts[: len(wanted)], fillvalue="0"):
        letters, numbers = _split_part(part)
        floor_letters, floor_numbers = _split_part(least)
        if letters != floor_letters:
            raise ValueError(f"{version!r} has no numbers to compare with {floor}")
        if numbers != floor_numbers:
            return numbers < floor_numbers
    return False


def _version_parts(version: str) -> list[str]:
    parts = re.split(r"[._\-]", version.strip()) if version.isascii() else []
    begin = next((place for place, part in enumerate(parts) if part[:1].isdigit()), 0)
    return parts[begin:] if any(map(str.isdigit, "".join(parts))) else []


def _split_part(part: str) -> tuple[list[str], list[int]]:
    """Return the letters and the numbers of a part, each in order."""
    return re.findall(r"[^0-9]+", part), [int(number) for number in re.findall(r"[0-9]+", part)]


def kernel_number(kernel: str) -> tuple[int, int] | None:
    """The first two numbers of a kernel's release; None when it has none."""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    return (int(match[1]), int(match[2])) if match else None
