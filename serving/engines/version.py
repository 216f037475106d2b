"""Versions of engines, and their order."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:\.?(a|b|rc|dev|post)(\d+))?(?:\+[0-9a-z.]+)?")
_PHASES = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, "post": 1}


def version_key(version: str) -> tuple[int, ...]:
    """Return what a version is ordered by: 0.21.1rc1 < 0.21.1 < 0.21.1.post1; a suffix such as +cu130 does not count. A
    build of llama.cpp is b11434.

    Raises:
        ValueError: the text is not a version.
    """
    if build := re.fullmatch(r"b(\d+)", version):
        return int(build[1]), 0, 0, 0, 0
    match = _VERSION.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r} is not a version; write it as 0.21.0")
    major, minor, patch, phase, number = match.groups()
    return int(major), int(minor), int(patch), _PHASES[phase], int(number or 0)
