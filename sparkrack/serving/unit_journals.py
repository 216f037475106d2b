"""The journals of the services of a unit on all its nodes, as one stream of lines."""

from __future__ import annotations

import heapq
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from shlex import join
from time import monotonic
from typing import NamedTuple, Self, TypeVar

from core.model import Rack
from core.model.errors import printable, printable_line
from core.ssh.client import ssh_config
from core.ssh.node_shells import ssh_config_file
from core.util.scrub import scrub
from serving.desired import service_name
from serving.options import ServedUnit

QUIET_SECONDS = 0.5
"""Seconds without a line after which those that are collected are printed."""
LONGEST_WAIT = 1.0
"""Seconds after which they are printed at the latest."""
_LAST_SECONDS = 1.0
"""Seconds to wait for the error output of a connection that ends."""
_PROGRAMS = {"": "engine", "-agent": "agent", "-coordinator": "coordinator"}
_FIELDS = "MESSAGE,_SYSTEMD_UNIT,UNIT,_PID"

_Argument = TypeVar("_Argument")


class JournalLine(NamedTuple):
    """An entry of the journal of one rank. `at`: microseconds since 1970."""

    at: int
    rank: int
    program: str
    message: str


class UnitJournals:
    """The journals of some ranks; a context manager, which ends the connections. `failed`: ranks without a journal."""

    def __init__(
        self,
        rack: Rack,
        unit: ServedUnit,
        ranks: Iterable[int],
        since: int,
        warn: Callable[[str], None],
        *,
        follow: bool,
    ) -> None:
        """`since`: seconds before now. `warn`: gets a line for each rank without a journal, as soon as it is known.
        `follow`: go on until the block ends.
        """
        self._rack = rack
        self._nodes = unit.ranks(rack.nodes)
        self._ranks = tuple(ranks)
        self._warn = warn
        self._follow = follow
        self._services = {service_name(unit, suffix): program for suffix, program in _PROGRAMS.items()}
        names = [word for name in self._services for word in ("-u", name)]
        words = ["journalctl", *names, f"--since=-{since}s", "--no-pager", "--quiet", "--output=json", "--all"]
        self._command = join([*words, f"--output-fields={_FIELDS}", *(["--follow", "--no-tail"] if follow else [])])
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._complaints: dict[int, str] = {}
        self._readers: dict[int, threading.Thread] = {}
        self._stack = ExitStack()
        self._over = False
        self.failed: list[int] = []

    def __enter__(self) -> Self:
        config = self._stack.enter_context(ssh_config_file(ssh_config(self._rack)))
        for rank in self._ranks:
            words = ["ssh", "-F", str(config), self._nodes[rank], f"sudo -n {self._command}"]
            self._processes[rank] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # Ctrl-C ends us, and we end it: otherwise it looks like a lost connection
            )
            self._readers[rank] = _start_thread(self._read_complaints, rank)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        for reader in self._readers.values():
            reader.join(_LAST_SECONDS)
        self._stack.close()

    def lines(self) -> Iterator[str]:
        """Yield the lines, ordered by time, as they may reach a terminal."""
        streams = [self._read_entries(rank) for rank in self._ranks]
        width = max(len(self._title_of_rank(rank)) for rank in self._ranks)
        for entry in self._as_they_come(streams) if self._follow else heapq.merge(*streams):
            yield from self._format_line(entry, width)

    def _title_of_rank(self, rank: int) -> str:
        return f"{self._nodes[rank]} (rank {rank})"

    def _format_line(self, entry: JournalLine, width: int) -> Iterator[str]:
        time = datetime.fromtimestamp(entry.at / 10**6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        for line in scrub(entry.message).splitlines() or [""]:
            yield f"{time}Z {self._title_of_rank(entry.rank):{width}} {entry.program}: {printable(line)}"

    def _read_entries(self, rank: int) -> Iterator[JournalLine]:
        """Yield the entries of one rank. A line that is not an entry is shown as it is, with the time of the one
        before."""
        process, at = self._processes[rank], 0
        for raw in process.stdout or ():
            try:
                entry = json.loads(raw)
                time, message, program = (
                    _parse_time(entry),
                    _decode_message(entry.get("MESSAGE")),
                    self._program_of_entry(entry),
                )
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError):
                time, message, program = at, raw.decode(errors="backslashreplace").rstrip("\n"), "no entry"
            at = time
            yield JournalLine(at, rank, program, message)
        if (code := process.wait()) and not self._over:
            self._readers[rank].join(_LAST_SECONDS)
            text = printable_line(scrub(self._complaints.get(rank) or f"exit {code}"))
            self.failed.append(rank)
            self._warn(f"{self._title_of_rank(rank)}: no journal: {text}")

    def _program_of_entry(self, entry: dict[str, object]) -> str:
        own = self._services.get(str(entry.get("_SYSTEMD_UNIT")))
        about = self._services.get(str(entry.get("UNIT")))
        return own or (f"systemd ({about})" if about else "systemd")

    def _as_they_come(self, streams: list[Iterator[JournalLine]]) -> Iterator[JournalLine]:
        """Yield entries of streams that have no end, ordered among those that arrive within a second."""
        arrived: queue.SimpleQueue[JournalLine | None] = queue.SimpleQueue()

        def read(stream: Iterator[JournalLine]) -> None:
            for entry in stream:
                arrived.put(entry)
            arrived.put(None)

        for stream in streams:
            _start_thread(read, stream)
        left, waiting = len(streams), list[JournalLine]()
        due = 0.0
        while left or waiting:
            try:
                entry = arrived.get(timeout=QUIET_SECONDS if left else 0)
            except queue.Empty:
                entry, due = None, 0.0
            else:
                if entry is None:
                    left -= 1
                elif not waiting:
                    due = monotonic() + LONGEST_WAIT
                if entry:
                    waiting.append(entry)
            if waiting and monotonic() >= due:
                yield from sorted(waiting)
                waiting.clear()

    def _read_complaints(self, rank: int) -> None:
        """Keep the latest line of the error output of one rank's connection."""
        for raw in self._processes[rank].stderr or ():
            if text := raw.decode(errors="backslashreplace").strip():
                self._complaints[rank] = text


def _start_thread(work: Callable[[_Argument], None], argument: _Argument) -> threading.Thread:
    reader = threading.Thread(target=work, args=(argument,), daemon=True)
    reader.start()
    return reader


def _parse_time(entry: dict[str, str]) -> int:
    """Return the time of an entry in microseconds since 1970. Raises an error when it is none."""
    at = int(entry["__REALTIME_TIMESTAMP"])
    datetime.fromtimestamp(at / 10**6, UTC)
    return at


def _decode_message(message: object) -> str:
    """Return a message: a text, or a list of bytes where it is not UTF-8."""
    if isinstance(message, list):
        return bytes(message).decode(errors="backslashreplace")
    return "" if message is None else str(message)
