"""Waiting for links after a change: until the switch says they are up, and the nodes behind them agree."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .batch import Link
from .drift_lanes import lane_words
from .errors import CheckError
from .line import Line
from .menus import Row
from .safemode import held
from .values import gbps

if TYPE_CHECKING:
    from .witness import Witness

SETTLE_SECONDS = 60.0
"""How long a link may take to come up again. Reported from the field: 8 to 40 s after a change of speed."""

SPEAK_SECONDS = 10.0


def settled(line: Line, links: tuple[Link, ...], seconds: float, witness: Witness | None) -> None:
    """All `links` are up at their speed, within `seconds`, at both ends; CheckError names those that are not.

    A forced port of the switch calls itself up whatever hangs on it (reported, RouterOS 7.20), so the node is
    asked too, where the run can ask it and its interface is switched on; where not, that is said.
    """
    ids = ",".join(link.id for link in links)
    sentence = ("/interface/ethernet/monitor", f"=numbers={ids}", "=once=", "=.proplist=name,status,rate")
    start = time.monotonic()
    spoken = 0.0
    while True:
        rows = {row.get("name", ""): row for row in line.talk(*sentence)}
        waiting = [text for link in links if (text := _not_up(link, rows.get(link.name)))]
        silent: list[str] = []
        if not waiting and witness:
            seen = witness(links)
            waiting = [*seen.disagree]
            silent = [*seen.cannot_tell]
        if not waiting:
            if silent:
                line.say(f"only the switch's word for it: {_grouped(silent)}")
            return
        held(line)  # without it what was written may be gone, and the links with it
        waited = time.monotonic() - start
        if waited >= seconds:
            raise CheckError(f"after {seconds:.0f} s {'; '.join(waiting)}")
        if waited - spoken >= SPEAK_SECONDS:
            spoken = waited
            line.say(f"waiting for links, {waited:.0f} of {seconds:.0f} s: {'; '.join(waiting)}")
        time.sleep(min(1.0, 0.1 + waited))


def _grouped(silent: list[str]) -> str:
    """Those who cannot tell, by why: a rack on its first day has one reason for all."""
    reasons: dict[str, list[str]] = {}
    for text in silent:
        who, _, why = text.partition(": ")
        reasons.setdefault(why, []).append(who)
    return "; ".join(f"{why} ({', '.join(who)})" for why, who in reasons.items())


def _not_up(link: Link, row: Row | None) -> str | None:
    row = row or {}
    status, rate = row.get("status", "not reported"), row.get("rate", "")
    if status == "link-ok" and gbps(rate) == link.leg.gbps:
        return None
    at = f" at {rate or 'no rate'}" if status == "link-ok" else ""
    name = f"leg {link.leg} ({lane_words(link.leg.lanes)}, to {link.port})"
    return f"{name} is {status}{at}, should be up at {link.leg.gbps}G"
