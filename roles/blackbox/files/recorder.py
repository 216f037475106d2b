#!/usr/bin/python3
"""The flight recorder of a node: a few samples a second, on its disk and on another node before it dies.

    recorder.py record --ring FILE      take samples until SIGTERM, or for --seconds; needs no root
    recorder.py receive --folder DIR    the other end: keep the samples of declared nodes, a ring for each
    recorder.py dump FILE               print the records of a ring, oldest first, one JSON object a line

A sample is one record of a fixed size with a sequence number, the boot and a checksum. Its place in the ring, a file
that was filled with zeros beforehand, follows from its number: a sample is one write and one fdatasync of one block,
and a record that a power cut tore is recognised.

What can hang has a thread of its own: nvidia-smi, the drivers of network and temperatures, the kernel's log, the disk
(ring and metrics) and the network. The loop that takes samples waits for none of them and starts no program, and the
memory of the process is locked where that is allowed.

Standard library only, Python 3.10 or later. Exit codes: 0 done, 1 failed, 2 wrong arguments; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = 1024
"""Bytes of a record: four fit into a block of a file system, and none crosses a block."""
HEADER = struct.Struct("<4sIHHIQ16s")
"""Magic, checksum of all that follows it, version, bytes of text, zero, sequence, boot."""
MAGIC, VERSION = b"sprk", 1
ROOM = SIZE - HEADER.size
CHECKED_FROM = 8
"""Where the bytes begin that the checksum covers."""

EVENTS = {
    "xid": rb"NVRM: Xid \(",
    "nvrm_no_memory": rb"NVRM: .*(NV_ERR_NO_MEMORY|[Oo]ut of memory)",
    "aer_corrected": rb"PCIe Bus Error: severity=Correct",
    "aer_nonfatal": rb"PCIe Bus Error: severity=Uncorrect\w* \(Non-Fatal\)",
    "aer_fatal": rb"PCIe Bus Error: severity=Uncorrect\w* \(Fatal\)",
    "ras_ce": rb"\[Hardware Error\]: event severity: corrected",
    "ras_ue": rb"\[Hardware Error\]: event severity: (recoverable|fatal|panic)",
    "soft_lockup": rb"BUG: soft lockup - CPU#",
    "rcu_stall": rb"rcu: INFO: \w+ (self-)?detected (expedited )?stall",
    "oops": rb": [0-9a-f]{4,16} \[#\d+\]",
}
"""What is counted in the kernel's log: the metric has all of it, a sample the part that `events_of` names."""
PATTERNS = [re.compile(pattern) for pattern in EVENTS.values()]

# claim: blackbox.recorder-gpu
GPU_FIELDS = {
    "clock": "clocks.sm",
    "power": "power.draw",
    "temperature": "temperature.gpu",
    "margin": "temperature.gpu.tlimit",
    "utilization": "utilization.gpu",
    "pstate": "pstate",
    "reasons": "clocks_event_reasons.active",
}
REASONS = (
    "gpu_idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)
"""Why the clock of the GPU is not higher, by bit (NVML's clocks event reasons)."""
GPU_HANGS = 10.0
"""Seconds without a line after which nvidia-smi is ended."""
PAUSE = 30.0
"""Longest pause in seconds before something that failed is tried again."""

# claim: blackbox.recorder-fabric
HALVES = {f"{domain}:01:00.{port}": (port, half) for half, domain in enumerate(("0000", "0002")) for port in (0, 1)}
"""Port and half of a ConnectX-7 function of a GB10 node, by its PCIe address."""
METRICS_EVERY = 15.0
LOOK_EVERY = 5.0
"""Interval in seconds at which the zones and interfaces are listed."""

BACKLOG = 600
"""Records that wait for the network: 5 minutes at 2 samples a second, 600 KiB."""
WAITING = 64
"""Records that wait for the disk."""
KEPT_ENDS = 100
"""Boots of a sender of which the receiver keeps when the last sample came."""
GREETING = re.compile(rb"sparkrack-recorder 1 ([0-9]{1,20})\n")
"""What a receiver sends, once, when it accepts a node: the newest sequence that it has of this node."""
NETWORK_LIMIT = 5.0
HANDSHAKE_LIMIT = 10.0
IDLE_LIMIT = 60.0
CONNECTIONS, CONNECTIONS_PER_ADDRESS = 32, 4
BURST, MOST_RATE = 2 * BACKLOG, 8
"""A connection may bring this many records at once, and this many a second on average."""


class RecorderError(Exception):
    """What ends the program, in one line."""


def log(message: str) -> None:
    """Write one line to stderr."""
    print(message, file=sys.stderr, flush=True)


# Records


@dataclass(frozen=True)
class Record:
    """One record that is whole. `body`: the sample without what the header has."""

    sequence: int
    boot: str
    body: dict[str, Any]


def encode(sequence: int, boot: str, body: dict[str, Any]) -> bytes:
    """Return a record. Zones, then interfaces, of a node with more than fit are left out."""
    text = _encode_json(body)
    for part in ("zones", "carrier"):
        while len(text) > ROOM and body[part]:
            body[part].popitem()
            text = _encode_json(body)
    head = HEADER.pack(MAGIC, 0, VERSION, len(text), 0, sequence, bytes.fromhex(boot))
    record = bytearray(head + text.ljust(ROOM, b"\0"))
    struct.pack_into("<I", record, 4, zlib.crc32(record[CHECKED_FROM:]))
    return bytes(record)


def decode(record: bytes) -> Record | None:
    """Return what a record holds; None for one that is torn, or none of ours."""
    if len(record) != SIZE:
        return None
    magic, checksum, version, length, _, sequence, boot = HEADER.unpack_from(record)
    if magic != MAGIC or version != VERSION or length > ROOM or checksum != zlib.crc32(record[CHECKED_FROM:]):
        return None
    try:
        body = json.loads(record[HEADER.size : HEADER.size + length])
    except (ValueError, RecursionError):
        return None
    return Record(sequence, boot.hex(), body) if isinstance(body, dict) else None


def _encode_json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def shown(record: Record) -> dict[str, Any]:
    """Return a record as `dump` prints it."""
    body = record.body
    parts = ("node", "uptime", "memory", "pressure", "load", "gpu", "zones", "carrier")
    return {
        "time": body.get("time"),
        "boot": record.boot,
        "sequence": record.sequence,
        **{part: body.get(part) for part in parts},
        "events": events_of(body.get("log")),
    }


def events_of(counted: object) -> dict[str, int | None]:
    """Return the counts of a sample by name; None where the kernel's log could not be read."""
    names = ("xid", "nvrm_no_memory", "aer", "soft_lockup", "oops")
    if not isinstance(counted, list) or len(counted) != len(EVENTS) + 1 or not all(type(n) is int for n in counted):
        return dict.fromkeys(names)
    counts = dict(zip(EVENTS, counted[1:], strict=True))
    counts["aer"] = counts["aer_corrected"] + counts["aer_nonfatal"] + counts["aer_fatal"]
    return {name: counts[name] for name in names}


def read_ring(path: Path) -> tuple[list[Record], int]:
    """Return the whole records of a ring, oldest first, and how many places hold anything else."""
    found, torn = read_places(path)
    return [record for record, _ in found], torn


def read_places(path: Path) -> tuple[list[tuple[Record, bytes]], int]:
    """Do as `read_ring`, with the bytes of each record."""
    content = path.read_bytes()
    if not content or len(content) % SIZE:
        raise RecorderError(f"{path}: is not a ring: {len(content)} bytes, wanted a multiple of {SIZE}")
    found, torn = [], 0
    for start in range(0, len(content), SIZE):
        place = content[start : start + SIZE]
        if (record := decode(place)) is not None:
            found.append((record, place))
        elif place.count(0) != SIZE:
            torn += 1
    return sorted(found, key=lambda pair: pair[0].sequence), torn


class Ring:
    """A ring that is open for writing. Another size keeps the newest records of the file that was there."""

    def __init__(self, path: Path, slots: int) -> None:
        self.path, self.slots = path, slots
        old: list[tuple[Record, bytes]] = []
        if path.exists():
            # First: a recorder that runs would go on in a file that was replaced.
            self._file = self._open_locked()
            with contextlib.suppress(RecorderError):
                old, _ = read_places(path)
            if os.fstat(self._file).st_size != slots * SIZE:
                os.close(self._file)
                self._make_file(old[-slots:])
                self._file = self._open_locked()
        else:
            self._make_file(())
            self._file = self._open_locked()
        self.newest = old[-1][0] if old else None

    def _open_locked(self) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise RecorderError(f"{self.path}: another recorder writes it") from None
        return file

    def _make_file(self, kept: Sequence[tuple[Record, bytes]]) -> None:
        new = self.path.with_name(f".{self.path.name}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), "wb") as file:
            for _ in range(self.slots):
                file.write(bytes(SIZE))
            for record, place in kept:
                file.seek(record.sequence % self.slots * SIZE)
                file.write(place)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)

    def put(self, sequence: int, record: bytes) -> None:
        """Write a record to its place; `sync` makes it last."""
        os.pwrite(self._file, record, sequence % self.slots * SIZE)

    def sync(self) -> None:
        """Return when the records are on the disk."""
        os.fdatasync(self._file)


# What a sample is made of


class Source:
    """A file of /proc or /sys that stays open; None where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def read(self) -> bytes | None:
        """Return its content now."""
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._file, 4096, 0)
        except OSError:
            self.close()
            return None

    def number(self) -> int | None:
        """Return its content as a whole number."""
        try:
            return int(self.read() or b"")
        except ValueError:
            return None

    def close(self) -> None:
        """Close it, until the next read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Memory:
    """Memory and load of a node, below `root`."""

    def __init__(self, root: Path) -> None:
        self._memory, self._pressure, self._load = (
            Source(root / f"proc/{name}") for name in ("meminfo", "pressure/memory", "loadavg")
        )

    def read(self) -> dict[str, Any]:
        """Return the parts of a sample."""
        memory = self._memory.read() or b""
        return {
            "memory": {
                "total": _parse_kibibytes(memory, b"MemTotal"),
                "available": _parse_kibibytes(memory, b"MemAvailable"),
            },
            "pressure": _parse_pressure(self._pressure.read()),
            "load": _first_number(self._load.read()),
        }


class Devices(threading.Thread):
    """Temperatures and links of a node, below `root`. A driver that hangs holds up what reads them."""

    def __init__(self, root: Path, period: float) -> None:
        super().__init__(daemon=True, name="devices")
        self._root, self._period = root, period
        self._zones: dict[str, Source] = {}
        self._carriers: dict[str, Source] = {}
        self._last: tuple[float, dict[str, float | None], dict[str, int | None]] = (float("-inf"), {}, {})

    def now(self) -> dict[str, Any]:
        """Return the parts of a sample; each value is None while they cannot be read."""
        read, zones, carrier = self._last
        if time.monotonic() - read > _fresh_for(self._period):
            zones, carrier = dict.fromkeys(zones), dict.fromkeys(carrier)
        return {"zones": dict(zones), "carrier": dict(carrier)}

    def run(self) -> None:
        """Read until the program ends."""
        looked = float("-inf")
        while True:
            if time.monotonic() - looked >= LOOK_EVERY:
                looked = time.monotonic()
                self._zones = self._keep_open_sources(self._zones, self._zone_files())
                self._carriers = self._keep_open_sources(self._carriers, self._carrier_files())
            zones = {name: source.number() for name, source in self._zones.items()}
            self._last = (
                time.monotonic(),
                {name: None if value is None else value / 1000 for name, value in zones.items()},
                {name: source.number() for name, source in self._carriers.items()},
            )
            time.sleep(self._period)

    @staticmethod
    def _keep_open_sources(before: dict[str, Source], paths: dict[str, Path]) -> dict[str, Source]:
        for name, source in before.items():
            if paths.get(name) != source.path:
                source.close()
        return {
            name: before[name] if name in before and before[name].path == path else Source(path)
            for name, path in paths.items()
        }

    def _zone_files(self) -> dict[str, Path]:
        """The file of each thermal zone by its type; zones of one type have their number as well."""
        folders = sorted(_list_folder(self._root / "sys/class/thermal", r"thermal_zone[0-9]+"), key=_trailing_number)
        types = [_read_text(folder / "type") or folder.name for folder in folders]
        count = Counter(types)
        return {
            kind if count[kind] == 1 else f"{kind}:{_trailing_number(folder)}": folder / "temp"
            for kind, folder in zip(types, folders, strict=True)
        }

    def _carrier_files(self) -> dict[str, Path]:
        """The file of each interface with hardware behind it, or such a name: containers have others, in any number."""
        folders = sorted(_list_folder(self._root / "sys/class/net", r"[A-Za-z0-9_.-]+"))
        return {
            folder.name: folder / "carrier"
            for folder in folders
            if folder.name.startswith("en") or (folder / "device").exists()
        }


def _list_folder(folder: Path, pattern: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]
    return []


def _trailing_number(path: Path) -> int:
    return int(re.findall(r"[0-9]+", path.name)[-1])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()[:40]
    except OSError:
        return ""


def _parse_kibibytes(text: bytes, key: bytes) -> int | None:
    found = re.search(rb"^%b:\s+([0-9]+) kB" % key, text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _parse_pressure(text: bytes | None) -> dict[str, float] | None:
    found = dict(re.findall(rb"^(some|full) avg10=([0-9.]+)", text or b"", re.MULTILINE))
    return {key: float(found[key.encode()]) for key in ("some", "full")} if len(found) == 2 else None


def _first_number(text: bytes | None) -> float | None:
    found = re.match(rb"[0-9]+(\.[0-9]+)?", text or b"")
    return float(found[0]) if found else None


def _fresh_for(period: float) -> float:
    """Return for how many seconds a value is one of now."""
    return max(2.0, 4 * period)


class Gpu(threading.Thread):
    """One nvidia-smi that prints a line a period. It is started again when it ends, and ended when it hangs."""

    def __init__(self, program: str, period: float) -> None:
        super().__init__(daemon=True, name="gpu")
        self._program, self._period = program, period
        self._fields = dict(GPU_FIELDS)
        self._child: subprocess.Popen[bytes] | None = None
        self._last: tuple[float, dict[str, Any]] | None = None
        self._said = self._logged = ""
        self._ending = False

    def now(self) -> dict[str, Any]:
        """Return the part of a sample."""
        last = self._last
        if last is not None and time.monotonic() - last[0] <= _fresh_for(self._period):
            return {"state": "ok", **last[1]}
        state = "absent" if last is None and self._child is None else "stale"
        return {"state": state, **dict.fromkeys(GPU_FIELDS)}

    def run(self) -> None:
        """Read until the program ends."""
        pause = 1.0
        while not self._ending:
            before, reason = self._last, self._read_child()
            if reason != self._logged and not self._ending:
                self._logged = reason
                log(f"no values of the GPU: {reason}")
            pause = 1.0 if self._last is not before else min(PAUSE, 2 * pause)
            time.sleep(pause)

    def stop(self) -> None:
        """End the program."""
        self._ending = True
        if (child := self._child) is not None:
            child.kill()

    def _read_child(self) -> str:
        """Read one nvidia-smi until it ends or hangs; the reason."""
        query = ",".join(self._fields.values())
        command = [self._program, "--id=0", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        command += ["-lms", str(round(1000 * self._period))]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            return f"{self._program}: {error.strerror}"
        self._child = child
        assert child.stdout is not None  # noqa: S101  for mypy
        output, rest, reason = child.stdout.fileno(), b"", ""
        while not reason:
            if not select.select([output], [], [], GPU_HANGS)[0]:
                reason = f"{self._program} printed nothing for {GPU_HANGS:g} s and is ended"
            elif chunk := os.read(output, 65536):
                *lines, rest = (rest + chunk)[-65536:].split(b"\n")
                for line in lines:
                    self._take_line(line.decode("utf-8", "replace").strip())
            else:
                reason = f"{self._program} ended{f': {self._said}' if self._said else ''}"
        child.kill()
        child.wait()  # without a limit: while one hangs in the driver, another would hang as well
        child.stdout.close()
        self._child = None
        return reason

    def _take_line(self, line: str) -> None:
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(self._fields):
            values = dict(zip(self._fields, words, strict=True))
            self._last = time.monotonic(), {key: _gpu_value(key, values.get(key, "")) for key in GPU_FIELDS}
        elif found := re.search(r'Field "([a-z_.]+)" is not a valid field', line):
            self._fields = {key: field for key, field in self._fields.items() if field != found[1]}
        elif line:
            self._said = line[:200]


def _gpu_value(key: str, word: str) -> Any:
    """Return a value of nvidia-smi; None for [N/A] and anything else that is none."""
    if key == "pstate":
        return word if re.fullmatch(r"P[0-9]{1,2}", word) else None
    if key == "reasons":
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word):
            return None
        return [name for bit, name in enumerate(REASONS) if int(word, 16) >> bit & 1]
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", word):
        return None
    number = float(word) / 100 if key == "utilization" else float(word)
    return int(number) if number.is_integer() and key != "utilization" else number


class KernelLog(threading.Thread):
    """Counts what the kernel itself logs; lines that a program wrote to its log do not count.

    `after`, `counts`: where an earlier recorder of the same boot ended, so that nothing is counted twice.
    """

    def __init__(self, path: Path, after: int = -1, counts: Sequence[int] = ()) -> None:
        super().__init__(daemon=True, name="kernel log")
        self._path, self._last = path, after
        self._counts = list(counts) or [0] * len(EVENTS)
        self._readable = False

    def now(self) -> list[int] | None:
        """Return the number of the last line and the counts; None where the log cannot be read."""
        return [self._last, *self._counts] if self._readable else None

    def run(self) -> None:
        """Read until the program ends."""
        logged = False
        while True:
            try:
                self._follow_device()
            except OSError as error:
                if not logged:
                    log(f"{self._path}: {error.strerror}; events of the kernel are not counted")
                self._readable, logged = False, True
            time.sleep(PAUSE)

    def _follow_device(self) -> None:
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The device gives one line a read, and EPIPE where the kernel overwrote lines before they were read.
            while True:
                try:
                    content = os.read(file, 65536)
                except BrokenPipeError:
                    continue
                for line in content.split(b"\n"):
                    self._count_line(line)
                self._readable = True
                if not content:
                    time.sleep(1)  # a file; the device waits
        finally:
            os.close(file)

    def _count_line(self, line: bytes) -> None:
        found = re.match(rb"([0-9]+),([0-9]+),[0-9]+,[^;]*;", line)
        if not found or int(found[2]) <= self._last:
            return
        self._last = int(found[2])
        if int(found[1]) >> 3:
            return  # not of the kernel
        for number, pattern in enumerate(PATTERNS):
            if pattern.search(line, found.end()):
                self._counts[number] += 1


# Where samples go


class Window:
    """What the metrics say of the samples since they were last written."""

    def __init__(self) -> None:
        self._gpu: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self.samples = 0

    def add(self, body: dict[str, Any]) -> None:
        """Take a sample."""
        self._last = body
        self.samples += 1
        if body["gpu"]["state"] == "ok":
            self._gpu.append(body["gpu"])

    def metrics(self, clock_cap: int | None) -> list[str]:
        """Return lines of the text format, and begin again."""
        gpu, self._gpu = self._gpu, []
        values = {key: [one[key] for one in gpu if one[key] is not None] for key in GPU_FIELDS}
        lines = _format_metric("sparkrack_recorder_samples_total", "counter", "Samples taken.", [({}, self.samples)])
        state = self._last["gpu"]["state"]
        states = [({"state": one}, int(one == state)) for one in ("ok", "stale", "absent")]
        lines += _format_metric("sparkrack_recorder_gpu_state", "gauge", "1 for the state of the GPU's values.", states)
        for name, text, key, factor, summary in (
            ("sm_clock_hertz", "Highest clock of the last 15 s.", "clock", 10**6, max),
            ("power_watts", "Highest power draw of the last 15 s.", "power", 1, max),
            ("temperature_celsius", "Highest temperature of the last 15 s.", "temperature", 1, max),
            ("tlimit_margin_celsius", "Lowest distance to the limit of the last 15 s.", "margin", 1, min),
            ("utilization_ratio", "Mean utilization of the last 15 s.", "utilization", 1, _mean_of_numbers),
        ):
            if values[key]:
                lines += _format_metric(f"sparkrack_gpu_{name}", "gauge", text, [({}, summary(values[key]) * factor)])
        if clock_cap is not None:
            text = "Declared cap of the clock."
            lines += _format_metric("sparkrack_gpu_clock_cap_hertz", "gauge", text, [({}, clock_cap * 10**6)])
        if values["reasons"]:
            shares = [
                ({"reason": name}, _mean_of_numbers([name in one for one in values["reasons"]])) for name in REASONS
            ]
            text = "Share of the samples in which this held the clock down, 0 to 1."
            lines += _format_metric("sparkrack_gpu_clock_event", "gauge", text, shares)
        if (counted := self._last["log"]) is not None:
            events = [({"event": name}, number) for name, number in zip(EVENTS, counted[1:], strict=True)]
            lines += _format_metric("sparkrack_kernel_events_total", "counter", "Events in the kernel's log.", events)
        return lines


def _mean_of_numbers(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _format_metric(name: str, kind: str, text: str, values: Sequence[tuple[dict[str, str], float]]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        inner = ",".join(f'{key}="{word}"' for key, word in labels.items())
        lines.append(f"{name}{f'{{{inner}}}' if inner else ''} {value if isinstance(value, int) else f'{value:.15g}'}")
    return lines


def fabric_metrics(root: Path) -> list[str]:
    """Return the counters of each RDMA device and the PCIe link of its function.

    Not the link of the GPU, which a GB10 reports as Gen1 x1 whatever it does.
    """
    traffic: list[tuple[dict[str, str], float]] = []
    hardware: list[tuple[dict[str, str], float]] = []
    widths: list[tuple[dict[str, str], float]] = []
    speeds: list[tuple[dict[str, str], float]] = []
    for folder in sorted(_list_folder(root / "sys/class/infiniband", r"[A-Za-z0-9_-]+")):
        device = {"device": folder.name}
        function = Path(os.path.realpath(folder / "device")).name
        for direction, name in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
            words = _read_number(folder / f"ports/1/counters/{name}")  # of 4 bytes
            if words is not None and function in HALVES:
                port, half = HALVES[function]
                traffic.append(({**device, "direction": direction, "half": str(half), "port": str(port)}, 4 * words))
        for file in sorted(_list_folder(folder / "ports/1/hw_counters", r"[a-z0-9_]+")):
            if file.name != "lifespan" and (value := _read_number(file)) is not None:
                hardware.append(({**device, "counter": file.name}, value))
        if (width := _read_number(folder / "device/current_link_width")) is not None:
            widths.append((device, width))
        if speed := re.match(r"([0-9.]+) GT/s", _read_text(folder / "device/current_link_speed")):
            speeds.append((device, float(speed[1])))
    lines: list[str] = []
    for name, kind, text, values in (
        ("sparkrack_rdma_bytes_total", "counter", "Bytes of RDMA and other traffic of a half.", traffic),
        ("sparkrack_rdma_hw_total", "counter", "Counters of hw_counters.", hardware),
        ("sparkrack_pcie_link_width", "gauge", "Lanes of the PCIe link of an RDMA device.", widths),
        ("sparkrack_pcie_link_gts", "gauge", "Speed of that link in GT/s.", speeds),
    ):
        lines += _format_metric(name, kind, text, values) if values else []
    return lines


def _read_number(path: Path) -> int | None:
    text = _read_text(path)
    return int(text) if re.fullmatch(r"[0-9]+", text) else None


class Disk(threading.Thread):
    """Writes records to the ring, and metrics to their file. A disk that hangs holds up nothing else."""

    def __init__(self, ring: Ring | None, path: Path, slots: int, metrics: Path | None, root: Path) -> None:
        super().__init__(daemon=True, name="disk")
        self._ring, self._path, self._slots, self._metrics, self._root = ring, path, slots, metrics, root
        self._waiting: deque[tuple[int, float, bytes]] = deque()
        self._lines: list[str] | None = None
        self._changed = threading.Condition()
        self._ending = False
        self._opened = time.monotonic()
        self._logged = ""
        self.dropped = 0
        self.last_sample: float | None = None
        """Time of the newest sample that is on the disk."""

    def put(self, sequence: int, now: float, record: bytes) -> None:
        """Hand a record over; the oldest waiting one gives way."""
        with self._changed:
            if len(self._waiting) == WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append((sequence, now, record))
            self._changed.notify()

    def put_metrics(self, lines: list[str]) -> None:
        """Hand metrics over; those that were not written yet give way."""
        with self._changed:
            self._lines = lines
            self._changed.notify()

    def end(self) -> None:
        """Write what waits and end, unless the disk hangs."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self.join(NETWORK_LIMIT)

    def run(self) -> None:
        """Write until the program ends."""
        while True:
            with self._changed:
                while not (self._waiting or self._lines or self._ending):
                    self._changed.wait()
                if not (self._waiting or self._lines):
                    return
                records, lines = list(self._waiting), self._lines
                self._waiting.clear()
                self._lines = None
            for record in records:
                try:
                    self._write_sample(*record)
                except (OSError, RecorderError) as error:
                    self.dropped += 1
                    self._log_once(str(error))
            try:
                if lines and self._metrics is not None:
                    self._write_metrics(self._metrics, lines)
            except OSError as error:
                self._log_once(str(error))

    def _write_sample(self, sequence: int, now: float, record: bytes) -> None:
        if self._ring is None:
            if time.monotonic() - self._opened < PAUSE:
                self.dropped += 1
                return
            self._opened = time.monotonic()
            self._ring = Ring(self._path, self._slots)
        self._ring.put(sequence, record)
        self._ring.sync()
        self.last_sample = now

    def _write_metrics(self, path: Path, lines: list[str]) -> None:
        if not path.parent.is_dir():
            self._log_once(f"{path.parent}: there is no such folder, so no metrics are written")
            return
        if self.last_sample is not None:
            name, text = "sparkrack_recorder_last_sample_timestamp_seconds", "Time of the newest sample on the disk."
            lines += _format_metric(name, "gauge", text, [({}, self.last_sample)])
        text = "Samples that did not reach the ring."
        lines += _format_metric("sparkrack_recorder_dropped_samples_total", "counter", text, [({}, self.dropped)])
        lines += fabric_metrics(self._root)
        new = path.with_name(f".{path.name}.new")
        new.write_text("\n".join(lines) + "\n", encoding="ascii")
        new.chmod(0o644)
        new.replace(path)

    def _log_once(self, message: str) -> None:
        if message != self._logged:
            self._logged = message
            log(message)


@dataclass(frozen=True)
class Certificates:
    """Files of this node: the authority of the rack, its own certificate and its key."""

    authority: str
    certificate: str
    key: str

    def context(self, purpose: int) -> ssl.SSLContext:
        """Return a context of TLS 1.3 that takes only certificates of the authority, as server and as client."""
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # `peer_name` is compared: the certificates name nodes, not hosts
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.authority)
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            files = f"{self.authority}, {self.certificate}, {self.key}"
            raise RecorderError(f"certificates ({files}): {error.strerror or error}") from None
        return context


def peer_name(connection: ssl.SSLSocket) -> str:
    """Return the one common name of the certificate at the other end; empty without exactly one."""
    subject: Any = (connection.getpeercert() or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""


class Peer(threading.Thread):
    """Sends the samples to another node. `name`: of that node, which its certificate must have."""

    def __init__(self, name: str, address: tuple[str, int], certificates: Certificates | None) -> None:
        super().__init__(daemon=True, name="peer")
        self._name, self._address, self._certificates = name, address, certificates
        self._records: deque[tuple[int, bytes]] = deque(maxlen=BACKLOG)
        self._changed = threading.Condition()
        self.connected = False
        self.sent = 0

    def put(self, sequence: int, record: bytes) -> None:
        """Hand a record over; the oldest of the backlog gives way."""
        with self._changed:
            self._records.append((sequence, record))
            self._changed.notify()

    def run(self) -> None:
        """Send until the program ends."""
        pause, logged = 1.0, ""
        while True:
            sent = self.sent
            try:
                self._stream_samples()
            except (OSError, RecorderError) as error:
                message = str(error)
            self.connected = False
            if message != logged:
                logged = message
                log(f"samples do not reach {self._name} ({self._address[0]}): {message}")
            pause = 1.0 if self.sent > sent else min(PAUSE, 2 * pause)
            time.sleep(pause)

    def _stream_samples(self) -> None:
        """Send until the connection fails."""
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection(self._address, timeout=NETWORK_LIMIT))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Without an answer the kernel gives a connection up after 15 minutes.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(2000 * NETWORK_LIMIT))
            if self._certificates is not None:
                context = self._certificates.context(ssl.PROTOCOL_TLS_CLIENT)
                secure = stack.enter_context(context.wrap_socket(connection))
                if (name := peer_name(secure)) != self._name:
                    raise RecorderError(f"its certificate names {name!r}")
                connection = secure
            last = self._read_greeting(connection)
            log(f"samples reach {self._name} ({self._address[0]})")
            self.connected = True
            while True:
                with self._changed:
                    newest = self._records[-1][0] if self._records else -1
                    if self._records and newest < last:  # it has records of an earlier life of this node
                        last = -1
                    waiting = [record for record in self._records if record[0] > last]
                    if not waiting:
                        self._changed.wait()
                        continue
                for sequence, record in waiting:
                    connection.sendall(record)
                    last = sequence
                    self.sent += 1

    @staticmethod
    def _read_greeting(connection: socket.socket) -> int:
        line = b""
        while not line.endswith(b"\n") and len(line) < 64:
            if not (chunk := connection.recv(64 - len(line))):
                raise RecorderError("it refuses this node")
            line += chunk
        if not (found := GREETING.fullmatch(line)):
            raise RecorderError("it is not a receiver of samples")
        return int(found[1])


def lock_memory() -> None:
    """Keep the memory of this process out of reclaim, where that is allowed: it must run when none is left."""
    unlimited = resource.RLIM_INFINITY
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
    # With a limit, an allocation beyond it would fail later.
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != unlimited:
        log("memory is not locked: the limit of locked memory is not infinity")
        return
    current, future = 1, 2
    if ctypes.CDLL(None, use_errno=True).mlockall(current | future):
        log(f"memory is not locked: {os.strerror(ctypes.get_errno())}")


@dataclass(frozen=True)
class Recording:
    """The arguments of `record`."""

    ring: Path
    node: str
    rate: int
    keep: int
    metrics: Path | None
    clock_cap: int | None
    program: str
    peer: Peer | None
    seconds: float | None
    root: Path


def record(wanted: Recording) -> None:
    """Take samples until SIGTERM or SIGINT, or for the seconds that were asked for."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    boot, slots = _boot_id(wanted.root), wanted.rate * wanted.keep
    ring = _open_ring(wanted, slots)
    newest = ring.newest if ring else None
    # A new ring begins above every sequence that an earlier ring of this node can have reached.
    sequence = newest.sequence + 1 if newest else int(time.time() * MOST_RATE)
    period = 1 / wanted.rate
    memory = Memory(wanted.root)
    devices = Devices(wanted.root, period)
    gpu = Gpu(wanted.program, period)
    kernel_log = _kernel_log(wanted.root / "dev/kmsg", newest, boot)
    disk = Disk(ring, wanted.ring, slots, wanted.metrics, wanted.root)
    window = Window()
    threading.stack_size(512 * 1024)
    for thread in (devices, gpu, kernel_log, disk, *([wanted.peer] if wanted.peer else [])):
        thread.start()
    lock_memory()
    began = due = time.monotonic()
    # The first metrics come after a second: what reads them after a start does not have to wait.
    reported = began + 1 - METRICS_EVERY
    while not stop.is_set() and (wanted.seconds is None or due - began < wanted.seconds):
        body = {
            "time": round(time.time(), 3),
            "node": wanted.node,
            "uptime": round(time.clock_gettime(time.CLOCK_BOOTTIME), 2),
            **memory.read(),
            "gpu": gpu.now(),
            **devices.now(),
            "log": kernel_log.now(),
        }
        packed = encode(sequence, boot, body)
        disk.put(sequence, body["time"], packed)
        if wanted.peer:
            wanted.peer.put(sequence, packed)
        window.add(body)
        sequence += 1
        if time.monotonic() - reported >= METRICS_EVERY:
            reported = time.monotonic()
            disk.put_metrics(_list_metrics(window, wanted))
        due = max(due + period, time.monotonic())  # samples that were missed are not made up for
        stop.wait(due - time.monotonic())
    if window.samples:
        disk.put_metrics(_list_metrics(window, wanted))
    gpu.stop()
    disk.end()
    log(f"{window.samples} samples in {time.monotonic() - began:.1f} s, {disk.dropped} not written; {_resource_use()}")


def _boot_id(root: Path) -> str:
    path = root / "proc/sys/kernel/random/boot_id"
    boot = _read_text(path).replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", boot):
        raise RecorderError(f"{path}: is not a boot id")
    return boot


def _open_ring(wanted: Recording, slots: int) -> Ring | None:
    """Open the ring; None where it cannot be, and the samples leave the node."""
    try:
        return Ring(wanted.ring, slots)
    except OSError as error:
        if wanted.peer is None:
            raise
        log(f"{wanted.ring}: {error.strerror}; samples only leave this node")
        return None


def _resource_use() -> str:
    """Return what this process has used of CPU and memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not ru_maxrss: it has the size of the process that started this one.
    memory = _parse_kibibytes(Path("/proc/self/status").read_bytes(), b"VmHWM")
    return f"{used.ru_utime + used.ru_stime:.2f} s of CPU time, {(memory or 0) // 2**20} MiB at most"


def _kernel_log(path: Path, newest: Record | None, boot: str) -> KernelLog:
    counted = newest.body.get("log") if newest and newest.boot == boot else None
    if isinstance(counted, list) and len(counted) == len(EVENTS) + 1 and all(type(n) is int for n in counted):
        return KernelLog(path, counted[0], counted[1:])
    return KernelLog(path)


def _list_metrics(window: Window, wanted: Recording) -> list[str]:
    lines = window.metrics(wanted.clock_cap)
    if wanted.peer:
        text = "Whether samples reach the other node."
        lines += _format_metric("sparkrack_recorder_peer_connected", "gauge", text, [({}, int(wanted.peer.connected))])
    return lines


# The other end


class Receiver:
    """Keeps the samples of declared nodes. `peers`: the address of each by its name.

    With certificates a node is known by the name in its own; without, by its address.
    """

    def __init__(
        self,
        folder: Path,
        listen: tuple[str, int],
        peers: dict[str, str],
        slots: int,
        certificates: Certificates | None,
    ) -> None:
        self._folder, self._peers, self._slots = folder, peers, slots
        self._certificates = certificates
        if certificates:
            certificates.context(ssl.PROTOCOL_TLS_SERVER)  # an error ends the program now, not a connection later
        self._rings: dict[str, Ring] = {}
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()
        self._refused: dict[str, float] = {}
        folder.mkdir(mode=0o750, exist_ok=True)
        self._listener = socket.create_server(listen, backlog=CONNECTIONS)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def serve(self) -> None:
        """Accept connections until the program ends."""
        while True:
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError as error:
                log(f"no connection can be accepted: {error.strerror}")
                time.sleep(1)
                continue
            with self._lock:
                full = self._open.total() >= CONNECTIONS or self._open[address] >= CONNECTIONS_PER_ADDRESS
                if not full:
                    self._open[address] += 1
            if full:
                self._log_refusal(address, "it has too many connections")
                connection.close()
                continue
            threading.Thread(target=self._serve_connection, args=(connection, address), daemon=True).start()

    def _serve_connection(self, connection: socket.socket, address: str) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(connection)
                connection.settimeout(HANDSHAKE_LIMIT)
                if self._certificates is None:
                    name = next((name for name, known in self._peers.items() if known == address), "")
                    reason = "it is not an address of a node that sends samples here"
                else:
                    context = self._certificates.context(ssl.PROTOCOL_TLS_SERVER)
                    connection = stack.enter_context(context.wrap_socket(connection, server_side=True))
                    name = peer_name(connection)
                    reason = f"its certificate names {name!r}, which sends no samples here"
                if name in self._peers:
                    connection.settimeout(IDLE_LIMIT)
                    self._take_samples(connection, name)
                else:
                    self._log_refusal(address, reason)
        except (OSError, RecorderError) as error:
            self._log_refusal(address, str(error))
        finally:
            with self._lock:
                self._open[address] -= 1
                if not self._open[address]:
                    del self._open[address]

    def _take_samples(self, connection: socket.socket, name: str) -> None:
        with self._lock:
            if name not in self._rings:
                self._rings[name] = Ring(self._folder / f"{name}.ring", self._slots)
            ring = self._rings[name]
            newest = ring.newest.sequence if ring.newest else 0
        connection.sendall(f"sparkrack-recorder 1 {newest}\n".encode())
        began, count, rest = time.monotonic(), 0, b""
        while chunk := connection.recv(16384):
            rest += chunk
            whole = len(rest) // SIZE * SIZE
            for start in range(0, whole, SIZE):
                place = rest[start : start + SIZE]
                count += 1
                if count > BURST + MOST_RATE * (time.monotonic() - began):
                    raise RecorderError(f"{name} sends more than {MOST_RATE} samples a second")
                if (found := decode(place)) is None or found.body.get("node") != name:
                    raise RecorderError(f"{name} sends what is not a sample of it")
                with self._lock:
                    if ring.newest and ring.newest.boot != found.boot:
                        self._record_end_of_boot(ring, ring.newest)
                    ring.put(found.sequence, place)
                    ring.newest = found
            if whole:
                ring.sync()
            rest = rest[whole:]

    def _record_end_of_boot(self, ring: Ring, last: Record) -> None:
        """Keep when the last sample of a boot came, by the clock of this node: it shows how wrong the sender's was.

        A line of NAME.ends: the boot, the time of the sample by its sender, and the time at which it was written here.
        """
        if not isinstance(sent := last.body.get("time"), int | float):
            return
        path = ring.path.with_suffix(".ends")
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        new = path.with_name(f".{path.name}.new")
        line = f"{last.boot} {sent} {ring.path.stat().st_mtime:.3f}"
        new.write_text("".join(f"{one}\n" for one in (*lines, line)[-KEPT_ENDS:]), encoding="ascii")
        new.replace(path)

    def _log_refusal(self, address: str, message: str) -> None:
        """Log it, at most once a minute for an address."""
        now = time.monotonic()
        with self._lock:
            if now - self._refused.get(address, float("-inf")) < 60:
                return
            if len(self._refused) > 1000:
                self._refused.clear()
            self._refused[address] = now
        log(f"connection of {address}: {message}")


# Commands


def dump(path: Path, last: int | None) -> None:
    """Print the records of a ring."""
    records, torn = read_ring(path)
    for one in records[-last:] if last else records:
        print(json.dumps(shown(one)))
    if torn:
        log(f"{path}: {torn} torn {'record' if torn == 1 else 'records'}")


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no ADDRESS:PORT")
    return host, int(port)


def _parse_named_value(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", name) or not value:
        raise argparse.ArgumentTypeError(f"{text} is no NAME=ADDRESS")
    return name, value


def _parse_whole_number(least: int, most: int) -> Any:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} to {most}")
        return int(text)

    return number


def _make_argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The flight recorder of a node.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="take samples")
    recording.add_argument("--ring", type=Path, required=True, help="file of the ring; made where there is none")
    recording.add_argument("--metrics", type=Path, help="file for the textfile collector, which ends in .prom")
    recording.add_argument(
        "--clock-cap", type=_parse_whole_number(300, 9999), help="declared cap of the clock in MHz, a metric"
    )
    recording.add_argument("--node", default=socket.gethostname().split(".")[0], help="name of this node")
    recording.add_argument("--nvidia-smi", default="nvidia-smi", help="the program that is asked about the GPU")
    recording.add_argument("--seconds", type=float, help="end after this time; without it the end is SIGTERM")
    recording.add_argument("--root", type=Path, default=Path("/"), help="the folder with proc, sys and dev")
    recording.add_argument(
        "--send", type=_parse_named_value, metavar="NODE=ADDRESS:PORT", help="the receiver of the samples"
    )
    receiving = commands.add_parser("receive", help="keep the samples of other nodes")
    receiving.add_argument("--folder", type=Path, required=True, help="folder of their rings, NODE.ring")
    receiving.add_argument("--listen", type=_parse_address, required=True, metavar="ADDRESS:PORT")
    receiving.add_argument("--peer", type=_parse_named_value, action="append", required=True, metavar="NODE=ADDRESS")
    for one in (recording, receiving):
        one.add_argument("--rate", type=_parse_whole_number(1, 4), default=2, help="samples a second, 1 to 4")
        one.add_argument(
            "--keep", type=_parse_whole_number(10, 3600), default=600, help="seconds in a ring, 10 to 3600"
        )
        one.add_argument("--tls", nargs=3, metavar=("AUTHORITY", "CERTIFICATE", "KEY"), help="without it, plain TCP")
    dumping = commands.add_parser("dump", help="print the records of a ring as JSON")
    dumping.add_argument("ring", type=Path)
    dumping.add_argument("--last", type=_parse_whole_number(1, 10**6), help="only this many of the newest records")
    return parser


def main() -> int:
    """Run the command; the exit code."""
    parser = _make_argument_parser()
    given = parser.parse_args()
    try:
        if given.command == "dump":
            dump(given.ring, given.last)
            return 0
        certificates = Certificates(*given.tls) if given.tls else None
        if given.command == "receive":
            receiver = Receiver(given.folder, given.listen, dict(given.peer), given.rate * given.keep, certificates)
            log(f"samples are received at {receiver.address[0]}:{receiver.address[1]}")
            receiver.serve()
        peer = None
        if given.send:
            name, address = given.send
            try:
                peer = Peer(name, _parse_address(address), certificates)
            except argparse.ArgumentTypeError as error:
                parser.error(str(error))
        record(
            Recording(
                given.ring,
                given.node,
                given.rate,
                given.keep,
                given.metrics,
                given.clock_cap,
                given.nvidia_smi,
                peer,
                given.seconds,
                given.root,
            )
        )
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # `dump | head`
    except (OSError, RecorderError) as error:
        log(f"recorder: {error}")
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
