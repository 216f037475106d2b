"""The record of a switch in a bundle of `sparkrack accept`: all that the switch prints of our menus, made anonymous.

Only reading sentences are sent. The emulator can be started from the output (`--fixture`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.routeros.errors import SentenceError, UnreadableError
from core.routeros.menus import BRIDGE_HOST, ETHERNET, MENUS, OLDEST, RESOURCE, Menu, Row, Sentence
from core.routeros.session import Client
from core.routeros.values import visible_row
from core.routeros.versions import release
from switch.anonymize import Mask
from switch.public_fields import COUNTER

FORMAT = 1

INTERFACE = "/interface"
"""Not a managed menu: only it prints max-l2mtu."""

MONITOR = "/interface/ethernet/monitor"

COMMANDS = (
    *("/safe-mode/take", "/safe-mode/release", "/safe-mode/unroll"),
    *("/export", "/system/backup/save", "/system/script/run", "/file/read", "/file/remove", "/file/print", MONITOR),
    *("/tool/fetch", "/system/reboot", "/system/package/apply-changes", "/system/routerboard/upgrade", "/log/print"),
)
"""Commands that we send besides reading and writing rows."""

VERBS = ("add", "set", "remove")
READING = ("print", "monitor", "inspect")


@dataclass(frozen=True)
class ProbeReading:
    """What a switch printed, before anything of it is replaced: the rows of the menus, the menus that it refused, the
    monitor's rows, the commands that it has, and how many addresses its chip has learned.
    """

    tables: Mapping[str, Sequence[Row]]
    refused: Mapping[str, str]
    monitor: Sequence[Row]
    commands: Mapping[str, list[str]]
    hosts: Mapping[str, int]

    @property
    def everything(self) -> tuple[Sequence[Row], ...]:
        """All rows, for a mask."""
        return (*self.tables.values(), self.monitor)


def read_probe(talker: Client) -> ProbeReading:
    """Read everything. What the switch refuses is recorded; raises SwitchError when it does not answer any more, and
    UnreadableError for answers no switch would give.
    """
    tables: dict[str, list[dict[str, str]]] = {}
    refused: dict[str, str] = {}
    for path in (*(menu.path for menu in MENUS if menu is not BRIDGE_HOST), INTERFACE):
        try:
            rows = _ask_reading(talker, f"{path}/print")
        except SentenceError as fault:
            refused[path] = str(fault)
        else:
            # Sessions of people are not configuration. By id, since names will be others.
            tables[path] = sorted((dict(row) for row in rows if row.get("connection") != "true"), key=_row_number)
    monitor = _monitor_ports(talker, tables.get(ETHERNET.path, []))
    return ProbeReading(tables, refused, monitor, dict(_list_commands(talker)), _learned_counts(talker, refused))


def _learned_counts(talker: Client, refused: dict[str, str]) -> dict[str, int]:
    """Count the addresses that the chip has learned, and those of its own ports: the table may have 128 K rows."""
    counts = {}
    try:
        for name, query in (("all", ()), ("own", ("?local=true",))):
            rows = _ask_reading(talker, f"{BRIDGE_HOST.path}/print", "=count-only=", *query)
            text = rows[-1].get("ret", "") if rows else ""
            counts[name] = int(text) if text.isdecimal() else 0
    except SentenceError as fault:
        refused[BRIDGE_HOST.path] = str(fault)
        return {"all": 0, "own": 0}
    return counts


def anonymized(reading: ProbeReading, mask: Mask) -> dict[str, Any]:
    """The record of a reading, with everything replaced that identifies its owner. `mask`: made of this reading, and
    perhaps of more.
    """
    masked = {path: [mask.row(path, row) for row in table] for path, table in reading.tables.items()}
    version = (masked.get(RESOURCE.path) or [{}])[0].get("version", "")
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": version,
        "menus": {path: [_without_counters(row) for row in table] for path, table in masked.items()},
        "refused": {path: mask.words(text) for path, text in reading.refused.items()},
        "monitor": [mask.row(MONITOR, row) for row in reading.monitor],
        "counters": {path: sorted(names) for path, table in masked.items() if (names := _list_counters(table))},
        "hosts": dict(reading.hosts),
        "commands": dict(reading.commands),
    }
    document["lacking"] = list(_lacking_commands(document["commands"], version))
    return document


def _ask_reading(talker: Client, *sentence: str) -> Sequence[Row]:
    """Send only reading sentences, regardless of the rest of this file."""
    if sentence[0].rpartition("/")[2] not in READING:
        raise ValueError(f"{sentence[0]} is not a sentence that reads")
    return [visible_row(row) for row in talker.talk(*sentence)]


def _row_number(row: Row) -> int:
    digits = row.get(".id", "*0").removeprefix("*")
    try:
        return int(digits, 16)
    except ValueError:
        raise UnreadableError(f"{row['.id']!r} is not an id") from None


def _monitor_ports(talker: Client, rows: Iterable[Row]) -> list[dict[str, str]]:
    """One look at every port, companion lanes among them."""
    ids = [row[".id"] for row in rows if ".id" in row]
    if not ids:
        raise UnreadableError(f"{ETHERNET.path} has no rows")
    return [dict(row) for row in _ask_reading(talker, MONITOR, f"=numbers={','.join(ids)}", "=once=")]


def _without_counters(row: Mapping[str, str]) -> dict[str, str]:
    """Without counters: how much traffic there was is the owner's."""
    return {name: value for name, value in row.items() if not _is_counter(name, value)}


def _list_counters(rows: Iterable[Row]) -> set[str]:
    return {name for row in rows for name, value in row.items() if _is_counter(name, value)}


def _is_counter(name: str, value: str) -> bool:
    return bool(COUNTER.fullmatch(name)) and value.replace(",", "").isdecimal()


def _list_commands(talker: Client) -> Iterator[tuple[str, list[str]]]:
    """Yield every command that we send and this release has, with its arguments, from the device itself."""
    wanted = dict.fromkeys(f"{menu.path}/{verb}" for menu in MENUS for verb in VERBS)
    seen: dict[str, set[str]] = {}
    for command in (*wanted, *(other for other in COMMANDS if other not in wanted)):
        path = command.rpartition("/")[0]
        if path not in seen:
            seen[path] = set(_list_console_children(talker, path))
        if command.rpartition("/")[2] in seen[path]:
            yield command, sorted(_list_console_children(talker, command))


def _list_console_children(talker: Client, path: str) -> Iterator[str]:
    where: Sentence = (f"=path={','.join(path.strip('/').split('/'))}",) if path.strip("/") else ()
    try:
        # claim: switch.console-inspect
        rows = _ask_reading(talker, "/console/inspect", "=request=child", *where)
    except SentenceError:
        return
    for row in rows:
        if row.get("type") == "child" and "name" in row:
            yield row["name"]


def _lacking_commands(commands: Mapping[str, list[str]], version: str) -> Iterator[str]:
    """Yield the commands and arguments that we might send and this release does not have."""
    running = release(version) or OLDEST
    yield from (command for command in COMMANDS if command not in commands)
    for menu in MENUS:
        written = [
            menu.spelled(name, running)
            for name, spec in menu.fields.items()
            if not (spec.read_only or spec.volatile) and spec.since <= max(running, OLDEST)
        ]
        for verb in _allowed_verbs(menu) if written else ():
            known = commands.get(f"{menu.path}/{verb}")
            if known is None:
                yield f"{menu.path}/{verb}"
            elif verb != "remove":
                yield from (f"{menu.path}/{verb} {name}" for name in written if name not in known)


def _allowed_verbs(menu: Menu) -> tuple[str, ...]:
    return ("set",) if menu.fixed or menu.single else ("add", "set", "remove")
