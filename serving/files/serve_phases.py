"""Phases of a start: when each began, and for how many seconds it took, by what the engine prints on each node.

    gates       all nodes check that they may start their rank; the coordinator knows it
    container   from the last line of the gate on the node, or the order to start, to the first line of the engine
    rendezvous, weights, compile, graphs
                by the lines of the engine that the unit file has (`phases`), from the first one that begins it to the
                last one that ends it, over all ranks
    answer      from the line by which the engine says that it listens to the answer that proves the unit

Phases may overlap, and what an engine does between them belongs to none. A phase whose lines were not seen is unknown,
never 0.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from serve_unit import ServeError, line

PHASES = ("gates", "container", "rendezvous", "weights", "compile", "graphs", "answer")
"""All phases, in their order."""
PRINTED = ("rendezvous", "weights", "compile", "graphs", "answer")
"""Those that an engine prints."""
GATE = "serve_start_gate.py"
"""The program that prints to the journal of a rank before docker does."""
EVERY = 10.0
"""Seconds between two readings of the journal while a rank loads."""
MOST_LINES = 5000
"""Lines of one reading, the latest ones."""
LATEST = 1e11
"""Seconds since 1970 that no clock has."""

Times = Mapping[str, "tuple[float | None, float | None]"]
"""By phase, begin and end in seconds since 1970 by the clock of the node; None: not seen."""


@dataclass(frozen=True)
class PhaseMarks:
    """Regular expressions for the lines of an engine that begin and end a phase; None: it prints none. One for the end
    may have the seconds of the phase as a group `seconds`: it then has a begin also where no line tells it.
    """

    begin: re.Pattern[str] | None = None
    end: re.Pattern[str] | None = None


def marks_of(place: str, value: object) -> dict[str, PhaseMarks]:
    """Return the marks of a unit file by phase. Raises ServeError for anything else."""
    found = {}
    for phase, marks in value.items() if isinstance(value, dict) else [("", None)]:
        if phase not in PRINTED or not isinstance(marks, dict) or not marks.keys() <= {"begin", "end"}:
            raise ServeError(f"{place}: {line(repr(phase), 40)}: expected one of {', '.join(PRINTED)} with begin, end")
        try:
            found[phase] = PhaseMarks(**{key: re.compile(text) for key, text in marks.items()})
        except (re.error, TypeError):
            raise ServeError(f"{place}: {phase}: expected regular expressions, not {line(repr(marks), 80)}") from None
    return found


class PhaseReader:
    """What the journal of a rank's service tells of one start.

    Args:
        journalctl: the command.
        marks: by phase.
        started: when the agent ordered the start, in seconds since 1970.
    """

    def __init__(self, journalctl: Sequence[str], marks: Mapping[str, PhaseMarks], started: float) -> None:
        self._journalctl, self._marks, self._started = tuple(journalctl), marks, started
        self._since, self._due = started, 0.0
        self._seen: set[str] = set()
        self._finished = self._cut = False
        """`_cut`: the first reading had as many lines as one may have, so that earlier ones are missing."""
        self.times: dict[str, tuple[float | None, float | None]] = {}

    def read(self, invocation: str, now: float, limit: float, *, loaded: bool) -> None:
        """Read what is new, every `EVERY` seconds until the unit is proven (`loaded`), and once more then. What cannot
        be read is not known.

        Args:
            invocation: of the service, by systemd.
            now: the monotonic clock.
            limit: seconds that journalctl may take.
            loaded: whether the coordinator says that the unit is ready.
        """
        if self._finished or not invocation or (now < self._due and not loaded):
            return
        self._due, self._finished = now + EVERY, loaded
        words = ["--output=json", "--output-fields=MESSAGE,SYSLOG_IDENTIFIER", "--no-pager", "--quiet", "--all"]
        words += [f"--lines={MOST_LINES}", f"--since=@{int(self._since)}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
        command = [*self._journalctl, *words]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
        except (OSError, subprocess.SubprocessError):
            return
        entries = list(_parse_journal_entries(done.stdout))
        self._cut |= not self.times and len(entries) >= MOST_LINES
        for key, at, program, text in entries:
            if key in self._seen:
                continue
            # The next reading begins within the second of the last entry.
            self._seen = {key, *(self._seen if int(at) == int(self._since) else ())}
            self._since = max(self._since, at)
            self._take_line(at, program, text)

    def _take_line(self, at: float, program: str, text: str) -> None:
        begin, end = self.times.get("container", (self._started, None))
        if program == GATE:
            self.times["container"] = at if end is None else begin, end
            return
        if not self._cut:
            self.times["container"] = begin, at if end is None else end
        for phase, marks in self._marks.items():
            begin, end = self.times.get(phase, (None, None))
            if marks.begin and marks.begin.search(text):
                # Another model, such as one that drafts tokens, may follow the first one.
                self.times[phase] = at if begin is None else begin, None
            elif marks.end and (found := marks.end.search(text)):
                took = found.groupdict().get("seconds")
                self.times[phase] = at - float(took) if begin is None and took else begin, at


def _parse_journal_entries(output: bytes) -> Iterator[tuple[str, float, str, str]]:
    """Yield cursor, time, program and message of each entry. A message that is not a text is a list of bytes."""
    for raw in output.splitlines():
        try:
            entry = json.loads(raw)
            message = entry.get("MESSAGE") or ""
            text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
            at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
            key = str(entry.get("__CURSOR", f"{at} {text}"))
            yield key, at, str(entry.get("SYSLOG_IDENTIFIER", "")), text
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def reported(value: object) -> dict[str, tuple[float | None, float | None]]:
    """Return the phases of a report. Raises ServeError for anything else."""
    fault = ServeError("the report has no valid phases")
    if not isinstance(value, dict) or not value.keys() <= set(PHASES):
        raise fault
    for times in value.values():
        if not isinstance(times, list | tuple) or len(times) != 2 or not all(_is_time(one) for one in times):
            raise fault
    return {phase: (times[0], times[1]) for phase, times in value.items()}


def _is_time(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < LATEST


def merged(ranks: Sequence[tuple[Times, float]]) -> dict[str, dict[str, float | None]]:
    """Return begin and seconds of each phase that a rank has seen, by the clock of the head.

    Args:
        ranks: of each rank its phases, and by how many seconds its clock is ahead.

    A phase has no seconds while one of the ranks that have begun it has not ended it.
    """
    found: dict[str, dict[str, float | None]] = {}
    for phase in PHASES:
        own = [(times[phase], ahead) for times, ahead in ranks if phase in times]
        begins = [begin - ahead for (begin, _), ahead in own if begin is not None]
        ends = [end - ahead for (_, end), ahead in own if end is not None]
        is_open = any(begin is not None and end is None for (begin, end), _ in own)
        if begins:
            took = max(ends) - min(begins) if ends and not is_open else None
            seconds = round(took, 1) if took is not None and took >= 0 else None
            found[phase] = {"begin": round(min(begins), 3), "seconds": seconds}
    return found


def valid(value: object) -> bool:
    """Return whether a value of a record is phases with begin and seconds."""
    return isinstance(value, dict) and all(
        phase in PHASES
        and isinstance(one, dict)
        and one.keys() == {"begin", "seconds"}
        and _is_time(one["begin"])
        and (one["seconds"] is None or one["seconds"] == 0 or _is_time(one["seconds"]))
        for phase, one in value.items()
    )
