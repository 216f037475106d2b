"""Legs after a rollback. A cage that restarts with the rollback trains its links again, and a bridge port whose link
was trained again may be left to the CPU (`offload`): the ports are bound to the chip again, as a change binds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.routeros.diff import RowChange
from core.routeros.errors import CheckError, SwitchError, UnreadableError
from core.routeros.menus import BRIDGE_PORT, ETHERNET
from core.routeros.reading import SwitchReading, read_switch
from core.routeros.rollback_script import quote
from core.routeros.safe_mode import RELEASE, TAKE, free, held
from core.routeros.session import Client
from switch.cages import lanes_of
from switch.leg_health import LINKED, RUNBOOK, monitor
from switch.offload import REBIND_SECONDS, rebind, rebinds

if TYPE_CHECKING:
    from core.hardware.switch_model import SwitchModel
    from core.routeros.change_plan import AffectedLink
    from switch.link_witness import Witness


def restarted(hardware: SwitchModel, changes: Iterable[RowChange], reading: SwitchReading) -> tuple[str, ...]:
    """The lanes (factory names) of all cages that writing `changes` restarts; undoing them restarts the same ones."""
    found = [change for change in changes if change.menu is ETHERNET]
    cages = [[name for name in lanes_of(cage) if name in reading.ethernet] for cage in hardware.cages]
    # MikroTik manual, 'MTU in RouterOS': changing l2mtu takes all interfaces of the switch down and up.
    if any(field.name == "l2mtu" for change in found for field in change.fields):
        return tuple(name for lanes in cages for name in lanes)
    rows = {change.row for change in found}
    return tuple(name for lanes in cages if rows & set(lanes) for name in lanes)


def linked(client: Client, reading: SwitchReading, lanes: Collection[str]) -> dict[str, str]:
    """The rate of each of these lanes that has a link now. Raises SwitchError."""
    if not lanes:
        return {}
    names = {reading.ethernet[lane]["name"]: lane for lane in lanes}
    rows = client.talk(*monitor(reading.ethernet[lane][".id"] for lane in lanes))
    return {
        names[row["name"]]: row.get("rate", "")
        for row in rows
        if row.get("name") in names and row.get("status") == LINKED
    }


@dataclass(frozen=True)
class LegRecovery:
    """Brings the legs of a switch that was rolled back to the reading `before` to the links they had.

    rates: of the lanes that restart with the rollback and had a link before. links: the cabled legs among them whose
    nodes `witness` asks. settle: seconds a link may take. stopped: returns why nothing may be written, if so.
    """

    switch: str
    before: SwitchReading
    rates: Mapping[str, str]
    links: tuple[AffectedLink, ...]
    settle: float
    witness: Witness | None
    stopped: Callable[[], str]

    def run(self, session: Client) -> str:
        """Wait for the links, bind their bridge ports again and look at both; what came of it. Never raises for a
        fault of switch or network. Ends with safe mode held when it fails: the caller closes the session."""
        try:
            late = self._wait_for_links(session)
            if why := self.stopped():
                return self.remaining(why)
            up = linked(session, self.before, self.rates)
            count = self._bind_ports(session, tuple(up))
            late = late or self._late_legs(session)
        except (SwitchError, CheckError, UnreadableError) as fault:
            return self.remaining(str(fault))
        if late:
            return self.remaining("; ".join(late))
        return (
            f"legs: {len(self.rates)} restarted with the rollback and are up as before; "
            f"{count} of their bridge ports are bound to the chip again"
        )

    def remaining(self, why: str) -> str:
        """What is left to do by hand, and how."""
        names = [self.before.ethernet[lane]["name"] for lane in self.rates]
        find = " or ".join(f"interface={quote(name)}" for name in names)
        return (
            f"LEGS NOT RESTORED after the rollback ({', '.join(names)}): {why}. When they are up, on the switch's "
            f"console: {BRIDGE_PORT.path}/set [find where {find}] hw=no; then the same with hw=yes; then: sparkrack "
            f"verify --limit {self.switch} ({RUNBOOK})"
        )

    def _wait_for_links(self, session: Client) -> list[str]:
        """Wait until all links are as before; those that are not, after `settle` seconds."""
        end = time.monotonic() + self.settle
        while (late := self._late_legs(session)) and time.monotonic() < end and not self.stopped():
            time.sleep(min(1.0, self.settle / 10))
        return late

    def _late_legs(self, session: Client) -> list[str]:
        now = linked(session, self.before, self.rates)
        late = [
            f"{self.before.ethernet[lane]['name']} {f'runs at {now[lane]}' if lane in now else 'has no link'}, "
            f"before the run {rate or 'it had one'}"
            for lane, rate in self.rates.items()
            if now.get(lane) != rate
        ]
        return late or (list(map(str, self.witness(self.links).disagree)) if self.witness else [])

    def _bind_ports(self, session: Client, lanes: tuple[str, ...]) -> int:
        """Bind the bridge ports of lanes again, under safe mode: a session that ends in between leaves hw=yes. Gives
        how many."""
        ports = rebinds(self._read_ports(session), lanes)
        if not ports:
            return 0
        free(session)
        session.talk(*TAKE)
        held(session)
        off, on = rebind(ports)
        session.talk(*off)
        time.sleep(REBIND_SECONDS)
        session.talk(*on)
        if rebinds(self._read_ports(session), lanes) != ports:
            raise CheckError("their bridge ports do not read hw=yes")
        held(session)
        session.talk(*RELEASE)
        return len(ports)

    def _read_ports(self, session: Client) -> SwitchReading:
        return read_switch(lambda sentence: session.talk(*sentence), (ETHERNET, BRIDGE_PORT))
