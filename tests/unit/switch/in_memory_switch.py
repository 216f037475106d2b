"""A switch in memory: sessions, safe mode, scripts and schedules, links, and what can go wrong with each."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from types import TracebackType
from typing import Self

from core.routeros.errors import SentenceError, SessionError
from core.routeros.session import SessionConnection
from tests.unit.switch import routeros_console
from tests.unit.switch.rows import SINGLE, Tables, factory

_EVENT = re.compile(r':if \(\[/system/resource get uptime\] (<|>=) (\d+)s\) do=\{ /system/script run "(.+)" \}')


class Clock:
    """A clock that sleeping moves, and what happens at a time. It stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events: dict[float, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in sorted(due for due in self.events if due <= self.now):
            self.events.pop(due)()


class Device:
    """The switch. `linger`: it has not noticed yet that a session is gone, so its safe mode still stands."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tables: Tables = factory() | {"/system/history": []}
        self.files: dict[str, bytes] = {}
        self.holder: Session | None = None
        self.before: Tables = {}
        self.safe: dict[str, str] | None = None
        self.linger = False
        self.down: dict[str, dict[str, str]] = {}
        self.heard: list[tuple[str, ...]] = []
        self.log: list[dict[str, str]] = []
        self.unreachable: Exception | None = None
        self.second_identity: str | None = None
        self.sessions = 0
        self.added: dict[str, float] = {}
        self.schedules_run = True
        self.started = 0.0

    def open(self) -> Session:
        if self.unreachable:
            raise self.unreachable
        self.sessions += 1
        session = Session(self, first=self.sessions == 1)
        if session.first:
            self.main = session
        return session

    def line(self) -> SessionConnection:
        """Return a connection like that of a run; `reported` has the messages to the user."""
        self.reported: list[str] = []
        line = SessionConnection(self.open, self.reported.append)  # type: ignore[arg-type]
        line.connect()
        return line

    @property
    def commands(self) -> list[str]:
        return [words[0] for words in self.heard]

    @property
    def armed(self) -> list[str]:
        return [row["name"] for path in ("/system/scheduler", "/system/script") for row in self.tables[path]]

    def settle(self) -> None:
        """The switch notices at last that the holder of safe mode is gone."""
        if self.holder and self.holder.closed:
            self.unroll()

    def unroll(self) -> None:
        self.holder, self.tables = None, self.before

    @property
    def uptime(self) -> int:
        return int(self.clock.now - self.started)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; then every schedule is due, and runs what it holds."""
        self.clock.now += seconds
        for row in list(self.tables["/system/scheduler"]):
            for line in row["on-event"].split("\n"):
                found = _EVENT.fullmatch(line)
                assert found, line
                left, right = self.uptime, int(found[2])
                if (left < right if found[1] == "<" else left >= right) and row["name"] in self.armed:
                    self.run(found[3])

    def run(self, name: str) -> None:
        (row,) = (row for row in self.tables["/system/script"] if row["name"] == name)
        routeros_console.run(row["source"], self.tables)

    def answer(self, session: Session, words: tuple[str, ...]) -> list[dict[str, str]]:
        menu, _, verb = words[0].rpartition("/")
        given = dict(word[1:].split("=", 1) for word in words[1:] if word.startswith("="))
        if menu == "/log":
            return self.log
        if menu in ("/safe-mode", "/file", "/system/backup", ""):
            return self._run_special(session, menu, verb, given)
        if (menu, verb) == ("/system/script", "run"):
            self.run(given["number"])
            return []
        if verb == "monitor":
            return [self._monitor_row(id_) for id_ in given["numbers"].split(",")]
        if verb == "print":
            asked = dict(word[1:].split("=", 1) for word in words[1:] if word.startswith("?"))
            return [dict(row) for row in self._rows_of_menu(session, menu) if asked.items() <= row.items()]
        return self._write_rows(menu, verb, given)

    def _rows_of_menu(self, session: Session, menu: str) -> list[dict[str, str]]:
        if menu == "/system/resource":
            return [self.tables[menu][0] | {"uptime": f"{self.uptime}s"}]
        if menu == "/system/scheduler":
            return [row | {"run-count": str(self.runs(row))} for row in self.tables[menu]]
        if menu == "/system/script":
            return [
                row | {"invalid": str(not routeros_console.readable(row["source"])).lower()}
                for row in self.tables[menu]
            ]
        if menu == "/system/identity" and not session.first and self.second_identity:
            return [{"name": self.second_identity}]
        return self.tables[menu]

    def runs(self, row: dict[str, str]) -> int:
        """How often a schedule has run: first one interval after it was added."""
        interval = float(row.get("interval", "").removesuffix("s") or 0)
        added = self.added.get(row["name"])
        return int((self.clock.now - added) / interval) if self.schedules_run and interval and added else 0

    def _write_rows(self, menu: str, verb: str, given: dict[str, str]) -> list[dict[str, str]]:
        flags = {"yes": "true", "no": "false"}
        values = {name: flags.get(value, value) for name, value in given.items() if name != ".id"}
        values = {name: value for name, value in values.items() if not name.endswith("password")}
        ids = given[".id"].split(",") if ".id" in given else []
        rows = self.tables[menu]
        if verb == "add":
            if menu == "/system/scheduler":
                self.added[given["name"]] = self.clock.now
            rows.append({".id": f"*{0x100 + len(rows):X}", **values})
            return [{"ret": rows[-1][".id"]}]
        known = {row.get(".id") for row in rows}
        if menu not in SINGLE and not set(ids) <= known:
            raise SentenceError("no such item")
        if verb == "remove":
            self.tables[menu] = [row for row in rows if row[".id"] not in ids]
        elif verb == "set":
            for row in rows:
                if menu in SINGLE or row[".id"] in ids:
                    row.update(values)
        else:
            raise AssertionError(verb)
        return []

    def _run_special(self, session: Session, menu: str, verb: str, given: dict[str, str]) -> list[dict[str, str]]:
        match menu, verb:
            case "/safe-mode", "print":
                return [self.safe if self.safe is not None else self._safe_mode_row(session)]
            case "/safe-mode", "take":
                if self.holder:
                    raise SentenceError("failure: safe mode is held by someone else")
                self.holder, self.before = session, copy.deepcopy(self.tables)
            case "/safe-mode", "release":
                self.holder = None
            case "/safe-mode", "unroll":
                self.unroll()
            case "", "export":
                self.files[f"{given['file']}.rsc"] = b"# export\n" + b"/ip/service\n" * 5000
            case "/system/backup", "save":
                assert given["encryption"] == "aes-sha256"
                self.files[f"{given['name']}.backup"] = bytes(range(256)) * 256
            case "/file", "print":
                return [{".id": f"*{name}", "name": name} for name in self.files]
            case "/file", "remove":
                for id_ in given[".id"].split(","):
                    del self.files[id_[1:]]
            case _:
                raise AssertionError((menu, verb))
        return []

    def _safe_mode_row(self, session: Session) -> dict[str, str]:
        if self.holder is None:
            return {"enabled": "false", "current": "false"}
        current = str(self.holder is session).lower()
        return {"enabled": "true", "current": current, "user": "sparkrack", "owner": "api"}

    def _monitor_row(self, id_: str) -> dict[str, str]:
        (row,) = (row for row in self.tables["/interface/ethernet"] if row[".id"] == id_)
        forced = row["auto-negotiation"] == "false"
        up = {"status": "link-ok", "rate": f"{row.get('speed', '').split('G')[0]}Gbps", "fec": row["fec-mode"]}
        return self.down.get(row["name"], {"name": row["name"], **(up if forced else {"status": "no-link"})})


class Session:
    """A session with the device. `trap` and `lose` are asked before each sentence of the first session whether
    it is refused, and whether the connection is lost: before it is heard, or once it was carried out."""

    def __init__(self, device: Device, *, first: bool) -> None:
        self.device, self.first, self.closed = device, first, False
        self.trap: Callable[[tuple[str, ...]], bool] = lambda _words: False
        self.lose: Callable[[tuple[str, ...]], str] = lambda _words: ""

    def talk(self, *words: str) -> list[dict[str, str]]:
        if self.closed:
            raise SessionError("the session is closed")
        when = self.lose(words)
        if when == "before":
            self._break_session()
        if self.first:
            self.device.heard.append(words)
        if self.trap(words):
            raise SentenceError("failure: refused")
        rows = self.device.answer(self, words)
        if when == "after":
            self._break_session()
        return rows

    def talk_bytes(self, *words: str) -> list[dict[str, bytes]]:
        assert words[0] == "/file/read"
        given = dict(word[1:].split("=", 1) for word in words[1:])
        start = int(given["offset"])
        return [{"data": self.device.files[given["file"]][start : start + int(given["chunk-size"])]}]

    def _break_session(self) -> None:
        self.close()
        raise SessionError("the session broke: closed by the switch")

    def close(self) -> None:
        self.closed = True
        if self.device.holder is self and not self.device.linger:
            self.device.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
