"""The emulated switch without its sockets: commands go directly to it, and tests control its time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from lab.routeros_emulator.config import SwitchConfig, User
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.dispatch import dispatch
from lab.routeros_emulator.link_wiring import NoWiring
from lab.routeros_emulator.menus import MENUS
from lab.routeros_emulator.request import Reply, RequestClient
from lab.routeros_emulator.sentence import parse

USER = "operator"


class _Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.live = True

    def cancel(self) -> None:
        self.live = False


class Bench:
    """One switch; ``client`` is a session of a user of the group full. Keyword arguments are fields of
    SwitchConfig. A second bench in the same folder is the same switch after a restart."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        password = folder / "password"
        password.write_text("correct horse\n")
        config = SwitchConfig(
            address="127.0.0.1",
            state=folder / "state.json",
            log=folder / "log",
            users=(User(name=USER, password_file=password),),
            **{"settle": 0.0, **fields},
        )
        self.passed = 0.0
        self._order = count()
        self._due: list[tuple[float, int, _Timer]] = []
        self.device = EmulatedDevice(config, MENUS, NoWiring(), self._call_later)
        self.device.links.boot()
        self.device.schedule.boot()
        self.client = self.session(1)

    def session(self, number: int, user: str = USER, group: str = "full") -> RequestClient:
        """Another session, without a login."""
        client = RequestClient(number, user, group, "192.0.2.1", "api", self.device.clock.stamp())
        self.device.clients[number] = client
        return client

    def ask(self, *words: str, client: RequestClient | None = None) -> Reply:
        """Give a command; TrapError when it is refused."""
        reply = dispatch(self.device, client or self.client, parse(list(words)))
        assert isinstance(reply, Reply)
        return reply

    def rows(self, path: str, *words: str) -> list[dict[str, str]]:
        """The rows of a menu as they are printed."""
        return [dict(row) for row in self.ask(f"{path}/print", *words).rows]

    def one(self, path: str, *words: str) -> dict[str, str]:
        """The only row of a menu, or the only one that answers a query."""
        (row,) = self.rows(path, *words)
        return row

    def log(self, topic: str = "script") -> list[str]:
        """Return the entries of the unit's log under a topic."""
        return [row["message"] for row in self.device.log if topic in row["topics"].split(",")]

    def pass_time(self, seconds: float) -> None:
        """Let time pass: whatever is due until then happens at its moment."""
        end = self.passed + seconds
        while self._due and self._due[0][0] <= end:
            due, _, timer = heapq.heappop(self._due)
            self._skip_to(due)
            if timer.live:
                timer.call()
        self._skip_to(end)

    def _skip_to(self, moment: float) -> None:
        self.device.clock.skip(moment - self.passed)
        self.passed = moment

    def _call_later(self, seconds: float, call: Callable[[], None]) -> _Timer:
        timer = _Timer(call)
        heapq.heappush(self._due, (self.passed + seconds, next(self._order), timer))
        return timer


def limited(client: RequestClient, *policies: str) -> RequestClient:
    """The same session with no other policies than these."""
    return replace(client, policies=frozenset(policies))
