"""Names of time zones, as the IANA time zone database has them; RouterOS takes the same."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import Annotated
from zoneinfo import available_timezones

from pydantic import AfterValidator, StrictStr

from core.model.fields import invalid

_SHAPE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_NOWHERE = {"localtime", "posixrules", "Factory"}
"""Files among the zones of a machine that are not the name of one."""


@cache
def _known_zones() -> dict[str, str]:
    """Every zone of this machine by its name in lower case; none on a machine without the database."""
    return {name.lower(): name for name in sorted(available_timezones() - _NOWHERE)}


def _time_zone(text: str) -> str:
    known = _known_zones()
    if not _SHAPE.fullmatch(text):
        raise invalid("{value} is not the name of a time zone", "write one like Europe/Berlin")
    if known.get(text.lower()) == text or not known:
        return text
    near = get_close_matches(text.lower(), known, 1)
    city = [name for lower, name in known.items() if lower.endswith(f"/{text.lower()}")]
    guess = known[near[0]] if near else city[0] if city else None
    raise invalid(
        "there is no time zone {value}", f"did you mean {guess}?" if guess else "write one like Europe/Berlin"
    )


TimeZone = Annotated[StrictStr, AfterValidator(_time_zone)]
