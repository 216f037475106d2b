"""The switch before and after an upgrade: identity, software, files, and what it lets us do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.routeros.errors import SentenceError, UnreadableError
from core.routeros.menus import (
    DEVICE_MODE,
    FACT,
    IDENTITY,
    PACKAGE,
    RESOURCE,
    ROUTERBOARD,
    SAFE_MODE,
    SCHEDULER,
    STATE,
    Menu,
    Row,
    Sentence,
)
from core.routeros.reading import Ask, SwitchReading, read_switch
from core.routeros.rollback_timer import is_timer
from core.routeros.safe_mode import enabled, holder
from core.routeros.values import milliseconds
from switch.advisories import marked_as_compromised
from switch.flags import read_flag

SYSTEM = Menu(
    "/system/resource",
    key=(),
    fixed=True,
    fields={"architecture-name": FACT, "free-hdd-space": STATE, "uptime": STATE},
)
FILES = Menu("/file", key=("name",), fields={"name": FACT, "size": FACT})


@dataclass(frozen=True)
class SwitchUnit:
    """One reading of the unit. `packages`: installed ones, name to version. `disabled`: those that are disabled.
    `files`: on the unit, name to size in bytes (None: not printed). `fetch`: why it does not download, "" when it does.
    `marked`: RouterOS has marked it as compromised. `held`: who holds safe mode, "" for no session. `armed`: the
    rollback timers.
    """

    reading: SwitchReading
    name: str
    architecture: str
    free: int
    uptime: float
    packages: Mapping[str, str]
    disabled: frozenset[str]
    files: Mapping[str, int | None]
    fetch: str
    marked: bool
    held: str
    armed: tuple[str, ...]

    @property
    def version(self) -> str:
        """The release as the switch prints it."""
        return self.reading.only(RESOURCE).get("version", "")

    @property
    def serial(self) -> str:
        return self.reading.only(ROUTERBOARD).get("serial-number", "")

    @property
    def firmware(self) -> tuple[str, str]:
        """The firmware that runs, and the one that the release has."""
        board = self.reading.only(ROUTERBOARD)
        return board.get("current-firmware", ""), board.get("upgrade-firmware", "")


def read_unit(ask: Ask) -> SwitchUnit:
    """Read the unit. Raises UnreadableError for an answer no switch would give, and the exceptions of `ask`."""
    reading = read_switch(ask, ())
    system = _single_row(ask, SYSTEM)
    rows = ask(PACKAGE.sentence())
    mode = _if_there(ask, (f"{DEVICE_MODE.path}/print", "=.proplist=mode,fetch,flagged"))
    installed = [row for row in rows if not read_flag(PACKAGE, row, "available")]
    return SwitchUnit(
        reading=reading,
        name=_single_row(ask, IDENTITY).get("name", ""),
        architecture=system.get("architecture-name", ""),
        free=_whole_number(system, "free-hdd-space"),
        uptime=_uptime_seconds(system),
        packages={row.get("name", ""): row.get("version", "") for row in installed},
        disabled=frozenset(row.get("name", "") for row in installed if read_flag(PACKAGE, row, "disabled")),
        files={row.get("name", ""): _size_bytes(row) for row in ask(FILES.sentence())},
        fetch=_fetch_refusal(mode),
        marked=marked_as_compromised(mode),
        held=next((holder(row) for row in _if_there(ask, SAFE_MODE.sentence()) if enabled(row)), ""),
        armed=tuple(name for row in ask(SCHEDULER.sentence()) if is_timer(name := row.get("name", ""))),
    )


def _single_row(ask: Ask, menu: Menu) -> Mapping[str, str]:
    rows = ask(menu.sentence())
    if len(rows) != 1:
        raise UnreadableError(f"{menu.path} has {len(rows)} rows; 1 is expected")
    return rows[0]


def _whole_number(row: Mapping[str, str], name: str) -> int:
    text = row.get(name, "")
    if not text.isdecimal():
        raise UnreadableError(f"{SYSTEM.path} {name}: {text!r} is not a number of bytes")
    return int(text)


def _uptime_seconds(row: Mapping[str, str]) -> float:
    try:
        return milliseconds(row.get("uptime", "")) / 1000
    except ValueError as fault:
        raise UnreadableError(f"{SYSTEM.path} uptime: {fault}") from None


def _size_bytes(row: Mapping[str, str]) -> int | None:
    text = row.get("size", "")
    return int(text) if text.isdecimal() else None


def _fetch_refusal(rows: Sequence[Row]) -> str:
    """Why /tool/fetch is off (MikroTik manual, 'Device mode': off in mode home; not among what a mark turns off)."""
    row = rows[0] if rows else {}
    if row.get("fetch", "no" if row.get("mode") == "home" else "yes") in ("no", "false"):
        return f"device mode {row.get('mode')} keeps /tool/fetch off; /system/device-mode/update fetch=yes"
    return ""


def _if_there(ask: Ask, sentence: Sentence) -> tuple[Row, ...]:
    """The rows of a menu that an older release may not have; () then."""
    try:
        return tuple(ask(sentence))
    except SentenceError as fault:
        if "no such command" not in str(fault):
            raise
        return ()
