"""How `sparkrack adopt` reads the toy's level."""

from __future__ import annotations

from core.model.role import AdoptedOption

from .desired import PATH


def _parse_level(text: str) -> int:
    return int(text.removeprefix("level = "))


ADOPT = (AdoptedOption("level", f"cat {PATH}", _parse_level),)
