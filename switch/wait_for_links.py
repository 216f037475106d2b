"""Wait for links after a change: until the switch reports them up, and the nodes behind them agree."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from core.routeros.change_plan import AffectedLink
from core.routeros.errors import CheckError
from core.routeros.menus import Row
from core.routeros.safe_mode import held
from core.routeros.session import SwitchConnection
from core.routeros.values import gbps
from switch.lane_differences import lane_words

if TYPE_CHECKING:
    from switch.link_witness import HalfReport, Witness

# claim: switch.legs.up-time
SETTLE_SECONDS = 60.0
"""Seconds for a link to come up again. Reported from the field: 8 to 40 s after a change of speed."""

SPEAK_SECONDS = 10.0


def wait_for_links(
    line: SwitchConnection, links: tuple[AffectedLink, ...], seconds: float, witness: Witness | None
) -> None:
    """Wait until all `links` are up at their speed, within `seconds`, at both ends; CheckError names those that are
    not.

    A forced port of the switch reports link up whatever is connected to it (reported, RouterOS 7.20), so the node is
    asked too, if the run can reach it and its interface is switched on; if not, that is reported.
    """
    ids = ",".join(link.id for link in links)
    sentence = ("/interface/ethernet/monitor", f"=numbers={ids}", "=once=", "=.proplist=name,status,rate")
    start = time.monotonic()
    spoken = 0.0
    while True:
        rows = {row.get("name", ""): row for row in line.talk(*sentence)}
        waiting = [text for link in links if (text := _not_up(link, rows.get(link.name)))]
        unknown: tuple[HalfReport, ...] = ()
        if not waiting and witness:
            seen = witness(links)
            waiting = [*map(str, seen.disagree)]
            unknown = seen.unknown
        if not waiting:
            if unknown:
                line.say(f"only the switch's word for it: {_group_by_reason(unknown)}")
            return
        held(line)  # without it the changes may be reverted, and the links with them
        waited = time.monotonic() - start
        if waited >= seconds:
            raise CheckError(f"after {seconds:.0f} s {'; '.join(waiting)}")
        if waited - spoken >= SPEAK_SECONDS:
            spoken = waited
            line.say(f"waiting for links, {waited:.0f} of {seconds:.0f} s: {'; '.join(waiting)}")
        time.sleep(min(1.0, 0.1 + waited))


def _group_by_reason(unknown: tuple[HalfReport, ...]) -> str:
    """The halves that are unknown, by reason: a rack on its first day has one reason for all."""
    reasons: dict[str, list[str]] = {}
    for report in unknown:
        reasons.setdefault(report.reason, []).append(report.half)
    return "; ".join(f"{reason} ({', '.join(halves)})" for reason, halves in reasons.items())


def _not_up(link: AffectedLink, row: Row | None) -> str | None:
    row = row or {}
    status, rate = row.get("status", "not reported"), row.get("rate", "")
    if status == "link-ok" and gbps(rate) == link.leg.gbps:
        return None
    at = f" at {rate or 'no rate'}" if status == "link-ok" else ""
    name = f"leg {link.leg} ({lane_words(link.leg.lanes)}, to {link.port})"
    return f"{name} is {status}{at}, should be up at {link.leg.gbps}G"
