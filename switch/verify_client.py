"""A switch as verify reads it: over REST as the read-only reader, or over a separate API session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from core.model.secrets import SecretError
from core.probes.protocol import UnknownError
from core.routeros.api import ApiSession
from core.routeros.errors import CheckError, SentenceError, SwitchError, UnreadableError
from core.routeros.menus import BRIDGE_PORT, ETHERNET, SAFE_MODE, SCHEDULER, SCRIPT, Row, place_of
from core.routeros.rest import Rest
from core.routeros.rollback_timer import is_timer
from core.routeros.safe_mode import enabled, holder
from core.routeros.values import visible_row
from switch.leg_health import monitor
from switch.link_ends import LinkEnd
from switch.offload import QUESTION, Forwarding, forwarding
from switch.target_state import DeclaredTarget

if TYPE_CHECKING:
    from core.model import Leg, Rack, Switch
    from core.routeros.menus import Sentence
    from core.routeros.reading import SwitchReading

COUNTERS = (
    "rs-fec-uncorrected",
    *("rx-pause", "tx-pause", "tx-drop", "tx-drop-packet"),
    *(f"tx-drop-queue{queue}-packet" for queue in range(8)),
)
"""Counters that must not grow while nothing is sent (names: RouterOS 7.23 command tree)."""


IDLE_SECONDS = 3.0
"""Seconds for which counters are watched."""


@dataclass(frozen=True)
class LiveReading:
    """COUNTERS by interface before and after a time of watching, and what forwarded the frames in it."""

    before: Mapping[str, Mapping[str, int]]
    after: Mapping[str, Mapping[str, int]]
    frames: Forwarding


class SwitchChecks:
    """Readings of one switch of a rack. Constant values are read once.

    An unknown value is an UnknownError of one line: neither passed nor failed. Nothing is sent before the first
    question, but the session of the API is opened with the first one.
    """

    def __init__(self, rack: Rack, switch: Switch) -> None:
        self.rack, self.switch = rack, switch
        self._way: Rest | ApiSession | None = None
        self._closed = ""

    @property
    def way(self) -> str:
        """How the switch is read, for reports."""
        reader = self.switch.reader
        return f"REST as {reader.user}" if reader else f"the API as {self.switch.user}, who may also write"

    @property
    def lost(self) -> bool:
        """Whether an error of the connection ended it; after an error of one sentence the switch is asked further."""
        return bool(self._closed)

    def ask(self, sentence: Sentence) -> tuple[Row, ...]:
        """The answer to one question, asked now."""
        with self._switch_errors():
            return tuple(self._way_to_ask()(sentence))

    @cached_property
    def reading(self) -> SwitchReading:
        """Everything that the declaration is compared with."""
        with self._switch_errors():
            # Not by `ask`: a menu that the switch may lack is recognized by the exception, which must stay unchanged.
            return DeclaredTarget(self.rack, self.switch).read(self._way_to_ask())

    @cached_property
    def ethernet(self) -> dict[str, Row]:
        """The interfaces by the name they have from the factory."""
        return {row.get("default-name", ""): row for row in self.ask(ETHERNET.sentence())}

    @cached_property
    def _bridge_ports(self) -> dict[str, Row]:
        return {row.get("interface", ""): row for row in self.ask(BRIDGE_PORT.sentence())}

    def port(self, leg: Leg) -> Row:
        """The bridge port of a leg; empty for a leg that is in no bridge."""
        return self._bridge_ports.get(self.ethernet.get(leg.interface, {}).get("name", leg.interface), {})

    @cached_property
    def links(self) -> dict[str, Row]:
        """The monitor's row of every cabled leg, by the leg's interface."""
        legs = [leg.interface for leg, _ in self.rack.cabling.legs(self.switch.name)]
        ids = {self.ethernet[name][".id"]: name for name in legs if ".id" in self.ethernet.get(name, {})}
        if not ids:
            return {}
        rows = self.ask(monitor(ids))
        names = {self.ethernet[name].get("name"): name for name in ids.values()}
        return {names[row["name"]]: row for row in rows if row.get("name") in names}

    def safe_mode_holder(self) -> str:
        """The current holder of safe mode; "" while it is free."""
        rows = self.ask(SAFE_MODE.sentence())
        try:
            (row,) = rows
            return holder(row) if enabled(row) else ""
        except (ValueError, CheckError) as fault:
            why = f"{SAFE_MODE.path} has {len(rows)} rows, wanted 1" if isinstance(fault, ValueError) else fault
            raise UnknownError(f"{self.switch.name}: {why}", str(why)) from None

    def armed(self) -> tuple[str, ...]:
        """The names of the rollback timers on the switch, now."""
        rows = (row for menu in (SCHEDULER, SCRIPT) for row in self.ask((f"{menu.path}/print", "=.proplist=name")))
        return tuple(dict.fromkeys(name for row in rows if is_timer(name := row.get("name", ""))))

    def hosts(self, ends: Iterable[LinkEnd]) -> dict[str, str]:
        """The interface (factory name) behind which each address of nodes is now; addresses in lower case."""
        names = {row.get("name", ""): name for name, row in self.ethernet.items()}
        return {
            row.get("mac-address", "").lower(): names.get(row.get("on-interface", ""), row.get("on-interface", ""))
            for mac in dict.fromkeys(end.mac for end in ends if end.mac)
            for row in self.ask(place_of(mac))
        }

    def counters(self) -> dict[str, dict[str, int]]:
        """COUNTERS of every interface (factory name) now, those that the switch reports."""
        rows = self.ask(("/interface/ethernet/print", f"=.proplist=default-name,{','.join(COUNTERS)}"))
        return {
            row.get("default-name", ""): {name: int(row[name]) for name in COUNTERS if row.get(name, "").isdecimal()}
            for row in rows
        }

    def frames(self) -> tuple[Row, ...]:
        """Current number of frames that each interface received, and of those that the CPU received."""
        return self.ask(QUESTION)

    @cached_property
    def watched(self) -> LiveReading:
        """COUNTERS and frames before and after IDLE_SECONDS without queries."""
        frames, counters = self.frames(), self.counters()
        time.sleep(IDLE_SECONDS)
        after = self.counters()
        interfaces = [leg.interface for leg, _ in self.rack.cabling.legs(self.switch.name)]
        return LiveReading(counters, after, forwarding(frames, self.frames(), interfaces))

    def close(self) -> None:
        """End the connection. Never raises."""
        if self._way:
            self._way.close()

    @contextmanager
    def _switch_errors(self) -> Iterator[None]:
        """Convert errors of the connection to a check without a result, with the reason."""
        if self._closed:
            raise self._unknown_error(self._closed)
        try:
            yield
        except (SwitchError, SecretError, UnreadableError) as fault:
            why = f"could not be read over {self.way}: {fault}"
            if not isinstance(fault, SentenceError | UnreadableError):
                # Asking again would knock with the same wrong password, or run the same command for it.
                self._closed = why
        else:
            return
        raise self._unknown_error(why)

    def _unknown_error(self, reason: str) -> UnknownError:
        return UnknownError(f"{self.switch.name} {reason}", reason)

    def _way_to_ask(self) -> Callable[[Sentence], list[dict[str, str]]]:
        if self._way is None:
            self._way = self._open_way()
        way = self._way
        return way.ask if isinstance(way, Rest) else lambda sentence: [visible_row(row) for row in way.talk(*sentence)]

    def _open_way(self) -> Rest | ApiSession:
        switch, host = self.switch, str(self.switch.address)
        if switch.reader and switch.tls:
            reader = switch.reader
            return Rest(
                host, reader.port, sha256=switch.tls.sha256, user=reader.user, password=reader.password.resolve()
            )
        pin = switch.tls.sha256 if switch.tls else None
        return ApiSession(host, switch.port, tls=pin, user=switch.user, password=switch.password.resolve())


def watch_forwarding(rack: Rack, legs: Sequence[Leg]) -> Callable[[], bool | None]:
    """Begin to watch what forwards the frames that come in by some legs. The result ends that and returns whether it is
    the CPU of a switch, by its counters; None when they cannot be read, or too few frames came in.
    """
    looks = {name: SwitchChecks(rack, rack.switches[name]) for name in dict.fromkeys(leg.switch for leg in legs)}
    before: dict[str, tuple[Row, ...]] = {}
    with suppress(UnknownError):
        before |= {name: look.frames() for name, look in looks.items()}

    def ended() -> bool | None:
        try:
            found = [
                forwarding(rows, looks[name].frames(), [leg.interface for leg in legs if leg.switch == name])
                for name, rows in before.items()
            ]
        except UnknownError:
            return None
        finally:
            for look in looks.values():
                look.close()
        if any(one.by_cpu for one in found):
            return True
        return None if not found or any(one.unseen for one in found) else False

    return ended
