#!/usr/bin/python3
"""Evidence of a rank that hangs, before it is stopped: what the GPU, the kernel and NCCL show on this node.

    serve_hang.py UNIT NODE FILE [--seconds 3]

It writes FILE, a JSON object on one line, and prints one clause when the figures tell a cause: "GPU 96 % at 20 W on
spark2: it spins". All parts are read at the same time, and what has not come in time is left out; `unread` says why.
It ends by itself after --seconds and is killed by its agent otherwise, so no part delays the stop further.

    gpu        samples of nvidia-smi, one a second: clock of the SMs in MHz, power in W, use in %, state
    processes  of the container: state, memory, and of the threads that compute or wait in the kernel the use of a CPU
               during the seconds, wait channel, system call and stack of the kernel
    nccl       each libnccl that a process has mapped: path, size, build ID: one version has different builds
    ras        what NCCL's RAS answers: state of each communicator, and operations that ranks have not launched

Standard library only, Python 3.10 or later. What NCCL answers is unproven on hardware; the protocol is that of
src/ras/client.cc of NCCL 2.30.7, the port its default.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_slice import CGROUPS, UnitSlice
from serve_unit import ServeError, line

SECONDS = 3.0
BUSY_PERCENT, IDLE_WATTS = 90.0, 30.0
"""A GB10 that computes takes more; kernels of NCCL that wait for a peer use it fully at 16 to 27 W (reported)."""
GPU_FIELDS = ("clocks.sm", "power.draw", "utilization.gpu", "utilization.memory", "pstate")
RAS = ("127.0.0.1", 28028)
MOST_PROCESSES, MOST_THREADS, MOST_SCANNED = 16, 12, 2000
"""Processes and threads of each that are described, and threads that are looked at."""
TEXT_LIMIT, RAS_LIMIT = 1000, 32768
"""Characters of a stack, and of the answer of NCCL."""
NOTES_LIMIT = 65536
"""Bytes of the notes of a library."""


class HangEvidence:
    """What is collected, part by part. `deadline`: of the monotonic clock."""

    def __init__(self, pids: Callable[[], list[int]], deadline: float, ras: tuple[str, int] = RAS) -> None:
        self._pids, self._deadline, self._ras = pids, deadline, ras
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {"gpu": [], "processes": [], "nccl": [], "ras": ""}
        self._unread: dict[str, str] = {}

    def collect(self) -> dict[str, Any]:
        """Read all parts until the deadline and return what has come. Threads that hang are left behind."""
        parts = {
            "gpu": self._read_gpu,
            "processes": self._read_processes,
            "nccl": self._read_nccl,
            "ras": self._ask_ras,
        }
        threads = [threading.Thread(target=self._read_part, args=(name, parts[name]), daemon=True) for name in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._lock:
            late = {name: "no answer in time" for name, thread in zip(parts, threads, strict=True) if thread.is_alive()}
            return copy.deepcopy({**self._found, "unread": {**late, **self._unread}})

    def _read_part(self, name: str, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # one part that fails must not take the others along
            with self._lock:
                self._unread[name] = line(error)

    def _seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _read_gpu(self) -> None:
        command = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
        while (left := self._seconds_left()) > 0.1:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=left)
            if done.returncode:
                raise ServeError(f"nvidia-smi ends with {done.returncode}: {line(done.stdout or done.stderr, 160)}")
            for row in done.stdout.splitlines()[:8]:
                values = [one.strip() for one in row.split(",")]
                with self._lock:
                    self._found["gpu"].append(dict(zip(GPU_FIELDS, values, strict=False)))
            if self._seconds_left() < 1.5:
                return
            time.sleep(1.0)

    def _read_processes(self) -> None:
        pids = self._pids()[:MOST_PROCESSES]
        before = _cpu_ticks(pids)
        begun = time.monotonic()
        time.sleep(max(0.1, self._seconds_left() * 0.7))
        passed = (time.monotonic() - begun) * os.sysconf("SC_CLK_TCK")
        after = _cpu_ticks(pids)
        for pid in pids:
            own = [(after[key] - before.get(key, after[key]), key[1]) for key in after if key[0] == pid]
            busy = sorted(own, key=lambda one: (one[1] != pid, -one[0]))
            threads = [
                {**thread, "cpu_percent": round(100 * used / passed)}
                for used, tid in busy
                if (thread := _read_thread(pid, tid)) and (used or tid == pid or thread["state"] == "D")
            ]
            status = dict(row.split(":\t", 1) for row in _read_text(f"/proc/{pid}/status").splitlines() if ":\t" in row)
            shown = {key.lower(): status.get(key, "").strip() for key in ("Name", "State", "Threads", "VmRSS")}
            with self._lock:
                self._found["processes"].append({"pid": pid, **shown, "busy": threads[:MOST_THREADS]})

    def _read_nccl(self) -> None:
        seen: dict[tuple[str, str], dict[str, Any]] = {}
        reasons = []
        for pid in self._pids()[:MOST_PROCESSES]:
            try:
                maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                reasons.append(f"/proc/{pid}/maps: {error.strerror}")
                continue
            for path in dict.fromkeys(re.findall(r" (/\S*libnccl\S*)", maps)):
                try:
                    with Path(f"/proc/{pid}/root{path}").open("rb") as file:
                        build, size = build_id(file.read), os.fstat(file.fileno()).st_size
                except (OSError, ValueError, struct.error) as error:
                    build, size = f"unknown: {line(error, 100)}", 0
                seen.setdefault((path, build), {"path": path, "build_id": build, "bytes": size, "pids": []})
                seen[path, build]["pids"].append(pid)
        with self._lock:
            self._found["nccl"] = list(seen.values())
        if reasons and not seen:
            raise ServeError(reasons[0])

    def _ask_ras(self) -> None:
        with socket.create_connection(self._ras, max(0.1, self._seconds_left())) as connection:
            # NCCL waits so many seconds for its other processes, 5 by default, and answers for those that it has.
            for question in ("CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"):
                connection.sendall(f"{question}\n".encode())
            answer = b""
            while len(answer) < RAS_LIMIT and (left := self._seconds_left()) > 0:
                connection.settimeout(left)
                part = connection.recv(4096)
                if not part:
                    return
                answer += part
                with self._lock:
                    self._found["ras"] = answer.decode(errors="replace")[:RAS_LIMIT]


def _cpu_ticks(pids: list[int]) -> dict[tuple[int, int], int]:
    """Return the ticks that each thread of the processes has computed."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            if len(found) >= MOST_SCANNED:
                return found
            fields = _read_text(str(stat)).rpartition(")")[2].split()
            if len(fields) > 12:
                found[pid, int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    return found


def _read_thread(pid: int, tid: int) -> dict[str, Any] | None:
    """Return what the kernel shows of a thread, None of one that has ended."""
    place = f"/proc/{pid}/task/{tid}"
    # The name stands in brackets and may have some itself; why a file cannot be read ends with one.
    fields = _read_text(f"{place}/stat").rpartition(")")[2].split()
    if not fields:
        return None
    return {
        "tid": tid,
        "name": _read_text(f"{place}/comm").strip(),
        "state": fields[0],
        "wchan": _read_text(f"{place}/wchan"),
        "syscall": _read_text(f"{place}/syscall").strip(),
        "stack": _read_text(f"{place}/stack"),
    }


def _read_text(path: str) -> str:
    """Return a file of the kernel, or why it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:TEXT_LIMIT]
    except OSError as error:
        return f"({error.strerror})"


def build_id(read: Callable[[int], bytes]) -> str:
    """Return the build ID of an ELF library of 64 bits from a reader of its begin. Raises ValueError without one."""
    data = read(NOTES_LIMIT)
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not an ELF library of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, table + number * size)
        end = min(offset + length, len(data))
        while kind == 4 and offset + 12 <= end:  # PT_NOTE
            name, content, note = struct.unpack_from("<III", data, offset)
            begin = offset + 12 + (name + 3) // 4 * 4
            if note == 3 and data[offset + 12 : offset + 12 + name] == b"GNU\0":  # NT_GNU_BUILD_ID
                return data[begin : begin + content].hex()
            offset = begin + (content + 3) // 4 * 4
    raise ValueError("it has no build ID")


def summary(gpu: list[dict[str, str]], node: str) -> tuple[str, bool]:
    """Return use and power of the GPU as a clause, and whether they are those of one that spins; empty without both."""
    figures = []
    for field in ("utilization.gpu", "power.draw"):
        values = [float(one[field]) for one in gpu if re.fullmatch(r"\d+(\.\d+)?", one.get(field, ""))]
        if not values:
            return "", False
        figures.append(statistics.median(values))
    use, power = figures
    spins = use >= BUSY_PERCENT and power < IDLE_WATTS
    return f"GPU {use:.0f} % at {power:.0f} W on {node}{': it spins' if spins else ''}", spins


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="serve-hang", description="Collect evidence of a rank that hangs.")
    parser.add_argument("unit", metavar="UNIT")
    parser.add_argument("node", metavar="NODE", help="its name, for the clause")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--generation", type=int, default=0)
    parser.add_argument("--boot", default="")
    parser.add_argument("--cgroups", metavar="FOLDER", default=CGROUPS, help="default: %(default)s")
    given = parser.parse_args(words)
    try:
        place = UnitSlice(given.unit, given.cgroups)
        found = HangEvidence(place.processes, begun + given.seconds).collect()
        clause, spins = summary(found["gpu"], given.node)
        head = {"unit": given.unit, "node": given.node, "generation": given.generation, "boot": given.boot}
        _write_json(given.file, {**head, "time": round(time.time(), 3), "summary": clause, **found})
    except OSError as error:
        print(f"serve-hang: {error.filename or given.file}: {error.strerror or error}", file=sys.stderr)
        return 1
    if spins:
        print(clause)
    return 0


def _write_json(path: str, values: dict[str, Any]) -> None:
    """Replace the file, which only root reads."""
    temporary = Path(f"{path}.new")
    temporary.touch(mode=0o600)
    with temporary.open("w", encoding="utf-8") as file:
        file.write(f"{json.dumps(values)}\n")
    temporary.replace(path)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        CODE = main(sys.argv[1:])
        sys.stdout.flush()
        os._exit(CODE)  # a thread that hangs in the kernel is not waited for
