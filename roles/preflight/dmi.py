"""Interpretation of DMI strings and versions. Pure."""

from __future__ import annotations

import re

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
    """Return whether a BIOS version is below a floor, compared number by number for the length of the floor.

    Parts are divided by `.`, `_` and `-`; text before the first number is the product's name, so "GX10DGX.0105.2026" is
    105, 2026 and "5.36_1.2" is 5, 36, 1, 2. A missing part counts as 0. Raises ValueError where a part that must be
    compared is not a number.
    """
    wanted, parts = _version_parts(floor), _version_parts(version)
    if not wanted or not all(part.isdigit() for part in wanted):
        raise ValueError(f"{floor!r} in rack.yaml has parts that are not numbers")
    if not parts or not all(part.isdigit() for part in parts[: len(wanted)]):
        raise ValueError(f"{version!r} has no numbers to compare with {floor}")
    parts += ["0"] * (len(wanted) - len(parts))
    return [int(part) for part in parts[: len(wanted)]] < [int(part) for part in wanted]


def _version_parts(version: str) -> list[str]:
    parts = re.split(r"[._\-]", version.strip()) if version.isascii() else []
    while parts and not parts[0].isdigit():
        parts.pop(0)
    return parts


def kernel_number(kernel: str) -> tuple[int, int] | None:
    """The first two numbers of a kernel's release; None when it has none."""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    return (int(match[1]), int(match[2])) if match else None
