"""Parsers of what hosts answer about the end of a boot. Pure. Times are those of the machine that wrote them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from core.routeros.menus import Row
from core.routeros.values import milliseconds
from sparkrack.autopsy.evidence import LinkChange, LogLine, Sample, UnitHang

EVIDENCE_SCHEMA = "sparkrack.boot-evidence/1"
CARDRESET = 32
"""Bit of bootstatus: the hardware's watchdog reset the machine (linux/watchdog.h)."""
CLOCK_SET = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
"""A clock of a GB10 that shows an earlier time was not set: there was none before."""
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
LINE_CHARACTERS = 2000
"""Characters of a line that are kept."""
_BOOT = re.compile(r"[0-9a-f]{32}")
_LINK = re.compile(r"(?P<name>\S+) link (?P<change>up|down)\b")
_STAMP = re.compile(r"(?P<stamp>\d{4}-\d\d-\d\dT\S+|\d{9,}(?:\.\d+)?)\s+(?P<text>.*)")
_EXTENDED = re.compile(r"(?P<priority>\d{1,4}),\d+,\d+,[^;]*;")
"""The head of a line of netconsole's extended form: priority, number, microseconds, flags."""
FACILITY = 8
"""A priority below this is of the kernel: the facility is the priority divided by it."""


class EvidenceError(ValueError):
    """An answer cannot be parsed; the text is one line."""


def moment(value: Any) -> float | None:
    """Return a time; None for a value that is none, and for one of a clock that was not set. Raises ValueError and
    TypeError for a value that is not a number.
    """
    at = float(value)
    return at if CLOCK_SET <= at < _LATEST else None


def boot_evidence(text: str) -> dict[str, Any]:
    """Parse what a node collected in a boot. Raises EvidenceError."""
    try:
        found = json.loads(text)
        known = found["schema"] == EVIDENCE_SCHEMA and _BOOT.fullmatch(found["boot"])
        for key in ("before", "marker", "journal", "pstore", "nvme", "nvme_before", "watchdogs", "kernel", "unread"):
            _ = found[key]
        known = known and (found["before"] is None or _BOOT.fullmatch(found["before"]))
        if (marker := found["marker"]) is not None:
            _ = (moment(marker["time"]), marker["target"])
        _ = ([record["text"] for record in found["pstore"] or ()], dict(found["unread"] or {}))
    except (ValueError, TypeError, KeyError) as fault:
        raise EvidenceError(f"evidence.json is not what boot_evidence.py writes: {type(fault).__name__}") from None
    if not known:
        raise EvidenceError("evidence.json has another schema or no boot ID")
    return dict(found)


def evidence_lines(found: Mapping[str, Any]) -> tuple[LogLine, ...]:
    """Return the journal of the boot before, as its evidence has it. Raises EvidenceError."""
    try:
        return tuple(
            LogLine(moment(line["time"]), "journal", str(line["source"]), _shorten_line(str(line["text"])))
            for line in (found["journal"] or {}).get("lines", ())
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise EvidenceError("evidence.json has a journal of an unexpected form") from None


def firmware(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a boot reports about a reset by a watchdog. Raises EvidenceError."""
    try:
        status = [
            f"{one['name']} has CARDRESET in its bootstatus ({one['bootstatus']})"
            for one in found["watchdogs"] or ()
            if (one["bootstatus"] or 0) & CARDRESET
        ]
        return (*map(str, found["kernel"] or ()), *status)
    except (TypeError, KeyError):
        raise EvidenceError("evidence.json has watchdogs of an unexpected form") from None


def power_ons(found: Mapping[str, Any]) -> int | None:
    """Return how often the disks got their power since the boot before, the most of all; None when it is unknown."""
    now, before = found["nvme"], found["nvme_before"]
    if not now or not before or now.keys() != before.keys():
        return None
    try:
        shutdowns, grown = (
            max(int(now[disk][name]) - int(before[disk][name]) for disk in now)
            for name in ("unsafe_shutdowns", "power_cycles")
        )
    except (TypeError, KeyError, ValueError):
        return None
    return grown if min(shutdowns, grown) >= 0 else None  # else it is another disk


def journal(text: str, source: str) -> dict[str, tuple[LogLine, ...]]:
    """Parse the JSON of journalctl: the lines by the ID of their boot. Lines of another form are left out; those from
    before the clock of the node was set have no time, and come first.
    """
    found: dict[str, list[LogLine]] = {}
    for entry in _parse_objects(text):
        try:
            at, boot = moment(int(entry["__REALTIME_TIMESTAMP"]) / 1e6), str(entry["_BOOT_ID"])
            message = _message_text(entry.get("MESSAGE", ""))
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        found.setdefault(boot, []).append(LogLine(at, source, _program_name(entry), _shorten_line(message)))
    return {boot: tuple(sorted(lines, key=lambda line: line.time or 0)) for boot, lines in found.items()}


def _program_name(entry: Mapping[str, Any]) -> str:
    """Return what wrote an entry, as boot_evidence.py does: each program chooses its SYSLOG_IDENTIFIER, and what one
    writes to /dev/kmsg never has the facility of the kernel, 0.
    """
    name = str(entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM") or entry.get("_TRANSPORT") or "?")
    from_kmsg = entry.get("_TRANSPORT") == "kernel"
    if from_kmsg and entry.get("SYSLOG_FACILITY") == "0":
        return "kernel"
    if name == "systemd" and entry.get("_PID") == "1" and not from_kmsg:
        return name
    if name in ("kernel", "systemd"):
        return f"{'/dev/kmsg' if from_kmsg else entry.get('_COMM') or '?'}, as {name}"
    return name


def _message_text(value: Any) -> str:
    """Return the text of an entry. Raises TypeError and ValueError for one of an unexpected form."""
    if value is None:
        return "(journalctl leaves out a text of this length)"
    if isinstance(value, list):
        # Numbers are the bytes of what is not a text; texts are those of an entry that has several.
        texts = [_message_text(one) for one in value if not isinstance(one, int)]
        return "; ".join(texts) if texts else bytes(value).decode(errors="replace")
    return str(value)


def _shorten_line(text: str) -> str:
    if len(text) <= LINE_CHARACTERS:
        return text
    return f"{text[:LINE_CHARACTERS]}... ({len(text) - LINE_CHARACTERS} characters left out)"


def samples(text: str) -> tuple[Sample, ...]:
    """Parse what `recorder.py dump` prints. Lines of another form are left out."""
    found = []
    for one in _parse_objects(text):
        try:
            at, boot = float(one["time"]), str(one["boot"])
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        if not 0 <= at < _LATEST:
            continue
        memory, gpu, pressure, events = (_as_mapping(one.get(key)) for key in ("memory", "gpu", "pressure", "events"))
        total, available = _finite_number(memory.get("total")), _finite_number(memory.get("available"))
        refused = _finite_number(events.get("nvrm_no_memory"))
        found.append(
            Sample(
                time=at,
                boot=boot,
                available=available / total if total and available is not None else None,
                full=_finite_number(pressure.get("full")),
                no_memory=None if refused is None else int(refused),
                clock=_finite_number(gpu.get("clock")),
                utilization=_finite_number(gpu.get("utilization")),
                margin=_finite_number(gpu.get("margin")),
                power=_finite_number(gpu.get("power")),
            )
        )
    return tuple(sorted(found, key=lambda one: one.time))


def hangs(text: str) -> tuple[UnitHang, ...]:
    """Parse what serve_hang.py has written. Lines of another form are left out."""
    found = []
    for one in _parse_objects(text):
        try:
            at, unit, boot = moment(one["time"]), str(one["unit"]), str(one["boot"]).replace("-", "")
            processes, builds = len(one["processes"]), [str(each["build_id"]) for each in one["nccl"]]
            said = [part for part in (str(one["summary"]), f"{processes} processes") if part]
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        said += [f"NCCL build {', '.join(dict.fromkeys(builds))}"] if builds else []
        said += ["an answer of NCCL's RAS"] if one.get("ras") else []
        if at is not None:
            found.append(UnitHang(unit, at, boot, _shorten_line("; ".join(said))))
    return tuple(found)


def netconsole(text: str) -> tuple[LogLine, ...]:
    """Parse a log of netconsole, each line with the receiver's stamp: seconds since 1970, or ISO 8601.

    What a program writes to /dev/kmsg is sent as well, with its own facility.
    """
    lines = []
    for line in filter(None, text.split("\n")):
        match = _STAMP.match(line)
        at = _parse_stamp(match["stamp"]) if match else None
        words = match["text"] if match and at is not None else line
        head = _EXTENDED.match(words)
        program = "/dev/kmsg, as kernel" if head and int(head["priority"]) >= FACILITY else "kernel"
        lines.append(LogLine(at, "netconsole", program, _shorten_line(words[head.end() :] if head else words)))
    return tuple(lines)


def _parse_stamp(text: str) -> float | None:
    try:
        if re.fullmatch(r"[0-9.]+", text):
            return moment(text)
        when = datetime.fromisoformat(text)
        return moment((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def switch_now(rows: Sequence[Row]) -> datetime:
    """Return the time of the switch's clock, without its zone. Raises EvidenceError."""
    row = rows[0] if rows else {}
    return _parse_moment(f"{row.get('date', '')} {row.get('time', '')}")


def switch_skew(rows: Sequence[Row], asked: float) -> float | None:
    """Return the seconds by which the switch's clock is ahead of the operator's; None for an unknown zone."""
    match = re.fullmatch(r"([+-])(\d\d):(\d\d)", (rows[0] if rows else {}).get("gmt-offset", ""))
    if not match:
        return None
    offset = (int(match[2]) * 3600 + int(match[3]) * 60) * (-1 if match[1] == "-" else 1)
    return switch_now(rows).replace(tzinfo=UTC).timestamp() - offset - asked


def switch_booted(rows: Iterable[Row]) -> float:
    """Return the seconds since the switch started. Raises EvidenceError."""
    try:
        return milliseconds(next(iter(rows), {}).get("uptime", "")) / 1000
    except ValueError as fault:
        raise EvidenceError(f"uptime of the switch: {fault}") from None


# claim: switch.link-log
def link_changes(
    interfaces: Iterable[Row], log: Iterable[Row], legs: Mapping[str, str], now: datetime, asked: float
) -> tuple[LinkChange, ...]:
    """Return when legs went up and down, by the operator's clock: from the log, and the last time from the interface.

    legs: the name of each leg by its factory name. now: of the switch's clock at `asked`, of the operator's. A time of
    an unexpected form is left out.
    """
    names = {row.get("name", ""): legs[row["default-name"]] for row in interfaces if row.get("default-name") in legs}
    changes = []
    for row in log:
        match = _LINK.match(row.get("message", ""))
        if match and match["name"] in names and (at := _seconds_before(row.get("time", ""), now)) is not None:
            changes.append(LinkChange(names[match["name"]], asked - at, match["change"] == "up", logged=True))
    for row in interfaces:
        leg, at = names.get(row.get("name", "")), _seconds_before(row.get("last-link-down-time", ""), now)
        known = any(
            one.leg == leg and not one.up and at is not None and abs(asked - at - one.time) < 2 for one in changes
        )
        if leg and at is not None and not known:
            changes.append(LinkChange(leg, asked - at, up=False, logged=False))
    return tuple(sorted(changes, key=lambda change: change.time))


def leg_frames(before: Iterable[Row], after: Iterable[Row], leg: str) -> int | None:
    """Return how many frames the switch received from a leg between two readings of its counters; None: unknown.

    A ConnectX-7 whose node stands still may go on to send pause frames, which do not count.
    """
    first, second = ([row for row in rows if row.get("default-name") == leg] for rows in (before, after))
    try:
        frames, pauses = (int(second[0][name]) - int(first[0][name]) for name in ("rx-packet", "rx-pause"))
    except (IndexError, KeyError, ValueError):
        return None
    return None if min(frames, pauses) < 0 else 0 if frames == pauses else frames


def _seconds_before(text: str, now: datetime) -> float | None:
    """Return how many seconds before `now` that was; the log leaves out the date of today."""
    try:
        moment = _parse_moment(text if "-" in text else f"{now:%Y-%m-%d} {text}")
    except EvidenceError:
        return None
    return (now - moment).total_seconds()


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        raise EvidenceError(f"{text[:40]!r} is not a date and time") from None


def _parse_objects(text: str) -> Iterable[dict[str, Any]]:
    # Not splitlines: JSON may have line separators of Unicode inside of a text.
    for line in text.split("\n"):
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict):
            yield one


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _finite_number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None
