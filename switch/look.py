"""A switch as its proof sees it: over REST as the reader, who can only read, or over an API session of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sparkrack.fleet.secrets import SecretError
from sparkrack.proof.told import UnknownError

from .api import Session
from .deadman import PREFIX
from .errors import CheckError, SentenceError, SwitchError, UnreadableError
from .goal import Declared
from .legs import monitor
from .menus import BRIDGE_HOST, BRIDGE_PORT, ETHERNET, SAFE_MODE, SCHEDULER, SCRIPT, Row
from .offload import QUESTION, Forwarding, forwarding
from .rest import Rest
from .safemode import enabled, holder
from .values import visible_row

if TYPE_CHECKING:
    from sparkrack.fleet import Leg, Rack, Switch

    from .menus import Sentence
    from .reading import Reading

COUNTERS = (
    "rs-fec-uncorrected",
    *("rx-pause", "tx-pause", "tx-drop", "tx-drop-packet"),
    *(f"tx-drop-queue{queue}-packet" for queue in range(8)),
)
"""What must not grow while nothing is sent (names: RouterOS 7.23 command tree)."""


IDLE_SECONDS = 3.0
"""How long counters are watched."""


@dataclass(frozen=True)
class Watched:
    """COUNTERS by interface before and after a time of watching, and who forwarded the frames in it."""

    before: Mapping[str, Mapping[str, int]]
    after: Mapping[str, Mapping[str, int]]
    frames: Forwarding


class Look:
    """One switch of a rack. What does not change by itself is asked for once.

    Whatever cannot be told is an UnknownError of one line: nothing is proven either way. Nothing is sent before the
    first question, but the session of the API is opened with the first one.
    """

    def __init__(self, rack: Rack, switch: Switch) -> None:
        self.rack, self.switch = rack, switch
        self._way: Rest | Session | None = None
        self._closed = ""

    @property
    def way(self) -> str:
        """How the switch is read, for reports."""
        reader = self.switch.reader
        return f"REST as {reader.user}" if reader else f"the API as {self.switch.user}, who may also write"

    def ask(self, sentence: Sentence) -> tuple[Row, ...]:
        """The answer to one question, asked now."""
        with self.told():
            return tuple(self._asking()(sentence))

    @cached_property
    def reading(self) -> Reading:
        """Everything that the declaration is compared with."""
        with self.told():
            # Not by `ask`: a menu that the switch may lack is told by the exception, which must stay what it is.
            return Declared(self.rack, self.switch).read(self._asking())

    @cached_property
    def ethernet(self) -> dict[str, Row]:
        """The interfaces by the name they have from the factory."""
        return {row.get("default-name", ""): row for row in self.ask(ETHERNET.sentence())}

    @cached_property
    def _ports(self) -> dict[str, Row]:
        return {row.get("interface", ""): row for row in self.ask(BRIDGE_PORT.sentence())}

    def port(self, leg: Leg) -> Row:
        """The bridge port of a leg; empty for a leg that is in no bridge."""
        return self._ports.get(self.ethernet.get(leg.interface, {}).get("name", leg.interface), {})

    @cached_property
    def links(self) -> dict[str, Row]:
        """What the monitor shows of every cabled leg, by the leg's interface."""
        legs = [leg.interface for leg, _ in self.rack.cabling.legs(self.switch.name)]
        ids = {self.ethernet[name][".id"]: name for name in legs if ".id" in self.ethernet.get(name, {})}
        if not ids:
            return {}
        rows = self.ask(monitor(ids))
        names = {self.ethernet[name].get("name"): name for name in ids.values()}
        return {names[row["name"]]: row for row in rows if row.get("name") in names}

    def safe_mode_holder(self) -> str:
        """Who holds safe mode now; "" while it is free."""
        rows = self.ask(SAFE_MODE.sentence())
        try:
            (row,) = rows
            return holder(row) if enabled(row) else ""
        except (ValueError, CheckError) as fault:
            why = f"{SAFE_MODE.path} has {len(rows)} rows, wanted 1" if isinstance(fault, ValueError) else fault
            raise UnknownError(f"{self.switch.name}: {why}") from None

    def armed(self) -> tuple[str, ...]:
        """The names of the rollback timers on the switch, now."""
        rows = (row for menu in (SCHEDULER, SCRIPT) for row in self.ask((f"{menu.path}/print", "=.proplist=name")))
        return tuple(dict.fromkeys(name for row in rows if (name := row.get("name", "")).startswith(PREFIX)))

    def hosts(self) -> dict[str, str]:
        """The interface (factory name) behind which each address is now; addresses in lower case."""
        names = {row.get("name", ""): name for name, row in self.ethernet.items()}
        return {
            row.get("mac-address", "").lower(): names.get(row.get("on-interface", ""), row.get("on-interface", ""))
            for row in self.ask(BRIDGE_HOST.sentence())
        }

    def counters(self) -> dict[str, dict[str, int]]:
        """COUNTERS of every interface (factory name) now, those that the switch tells."""
        rows = self.ask(("/interface/ethernet/print", f"=.proplist=default-name,{','.join(COUNTERS)}"))
        return {
            row.get("default-name", ""): {name: int(row[name]) for name in COUNTERS if row.get(name, "").isdecimal()}
            for row in rows
        }

    def frames(self) -> tuple[Row, ...]:
        """How many frames each interface received, and how many of them the CPU took, now."""
        return self.ask(QUESTION)

    @cached_property
    def watched(self) -> Watched:
        """COUNTERS and frames before and after IDLE_SECONDS in which nothing is asked."""
        frames, counters = self.frames(), self.counters()
        time.sleep(IDLE_SECONDS)
        after = self.counters()
        interfaces = [leg.interface for leg, _ in self.rack.cabling.legs(self.switch.name)]
        return Watched(counters, after, forwarding(frames, self.frames(), interfaces))

    def close(self) -> None:
        """End the connection. Never raises."""
        if self._way:
            self._way.close()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turns what can go wrong on the way into a check that could not tell, with the reason."""
        if self._closed:
            raise UnknownError(self._closed)
        try:
            yield
        except (SwitchError, SecretError, UnreadableError) as fault:
            why = f"{self.switch.name} could not be read over {self.way}: {fault}"
            if not isinstance(fault, SentenceError | UnreadableError):
                # Asking again would knock with the same wrong password, or run the same command for it.
                self._closed = why
        else:
            return
        raise UnknownError(why)

    def _asking(self) -> Callable[[Sentence], list[dict[str, str]]]:
        if self._way is None:
            self._way = self._open()
        way = self._way
        return way.ask if isinstance(way, Rest) else lambda sentence: [visible_row(row) for row in way.talk(*sentence)]

    def _open(self) -> Rest | Session:
        switch, host = self.switch, str(self.switch.address)
        if switch.reader and switch.tls:
            reader = switch.reader
            return Rest(
                host, reader.port, sha256=switch.tls.sha256, user=reader.user, password=reader.password.resolve()
            )
        pin = switch.tls.sha256 if switch.tls else None
        return Session(host, switch.port, tls=pin, user=switch.user, password=switch.password.resolve())
