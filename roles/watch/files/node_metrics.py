#!/usr/bin/python3
"""What a node knows of itself, as metrics for the textfile collector of node_exporter.

    node_metrics.py --metrics FILE      read everything once and write FILE, which ends in .prom

It reads what the roles of sparkrack leave on a node, asks systemd and the journal, and changes nothing but FILE. It
does not know what rack.yaml declares: the alerts compare. A part that cannot be read has no series, and
sparkrack_node_metrics_unread names it.

Standard library only, Python 3.10 or later. Exit codes: 0 written, 1 not written; the reason is on stderr. HELP has
the series.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BLACKBOX = "/var/lib/sparkrack/blackbox"
UNIT_FILES = "/etc/sparkrack/serve"
UNIT_RECORDS = "/var/lib/sparkrack/serve"
START_LIMITS = {"gating": "gate_limit", "starting": "ready_limit"}
"""The states of a unit that starts, and what limits each of them in the unit's file."""
PROOFS = "/var/lib/sparkrack/serve/rdma"
MODELS = "/srv/models"
CERTIFICATES = {"node": "/etc/sparkrack/blackbox/node.pem", "ca": "/etc/sparkrack/blackbox/ca.pem"}
GUARD = "sparkrack-memory-guard.service"
GUARD_KILLS = "ended every container"
UNITS = {
    "systemd-journal-upload.service": "upload",
    "sparkrack-recorder.service": "recorder",
    "sparkrack-clock-cap.service": "clock_cap",
}
"""Units whose activity is a part of the black box."""
SBSA = "SBSA Generic Watchdog"
"""What the driver of the GB10's watchdog calls itself. No other one can panic first."""
FIRST_STAGE = re.compile(r"sbsa-gwdt.*: Initialized with .* action=([0-9]+)\.")
"""What that driver logs when it starts: it shows its parameter in no file."""
RACE_FREE_TIMEOUT = 3
"""Seconds. That driver has this minimum of its timeout, or more, only while its action is 0."""
FIRST_STAGE_FILES = ("/etc/modprobe.d/zz-sparkrack-watchdog.conf", "/etc/default/grub.d/zz-sparkrack-watchdog.cfg")
"""Where the role blackbox sets it."""
JOURNAL_MAGIC, JOURNAL_TAIL = b"LPKSHHRH", 192
"""How a file of the journal begins, and where it has the time of its newest entry (8 bytes, in us)."""
RECEIVED = re.compile(r"remote-([^@]+)(?:@.*)?\.journal")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
MODEL_FILE = re.compile(r"([0-9a-f]{64}) (\d+) ([^\t]+)\t(\d+)")
COMMAND_SECONDS = 30
LARGEST = 4 << 20
"""Bytes of a file of text that are read: the memory of the service is limited."""

HELP = {
    "sparkrack_boot_clean": "Whether the boot before this one ended with a shutdown.",
    "sparkrack_crash_records": "Records of panics: in pstore, and in the archive by this boot.",
    "sparkrack_blackbox_armed": "Whether a part of the black box is active.",
    "sparkrack_journal_newest_timestamp_seconds": "Time of the newest entry in the journal of this node.",
    "sparkrack_journal_received_timestamp_seconds": "Time of the newest entry received from another node.",
    "sparkrack_netconsole_received_timestamp_seconds": "When the kernel of another node last sent a message.",
    "sparkrack_certificate_expiry_timestamp_seconds": "When a certificate of the black box ends.",
    "sparkrack_memory_guard_kill_timestamp_seconds": "When the memory guard last ended containers in this boot.",
    "sparkrack_bandwidth_bits_per_second": "What a half carried to a peer when it was last measured.",
    "sparkrack_bandwidth_least_bits_per_second": "What it must carry.",
    "sparkrack_bandwidth_record_current": "Whether boot and carrier are those of the measurement.",
    "sparkrack_unit_state": "1 for the state of a unit that its coordinator has recorded.",
    "sparkrack_unit_start_deadline_timestamp_seconds": "Until when a unit that starts may take to be ready.",
    "sparkrack_unit_start_phase_seconds": "Seconds of a phase of the latest start of a unit.",
    "sparkrack_model_info": "Digest of the verified files of a model.",
    "sparkrack_node_metrics_unread": "1 for a part that could not be read.",
    "sparkrack_node_metrics_timestamp_seconds": "When these metrics were made.",
}


class UnreadError(Exception):
    """A part cannot be read; the text is the reason, in one line."""


class Sample(NamedTuple):
    """One value of a series."""

    series: str
    labels: dict[str, str]
    value: float


class Node:
    """What one node has. `root`: the folder that stands for /, in tests."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.parts: dict[str, Callable[[], Iterator[Sample]]] = {
            "boot": self.boot,
            "pstore": self.pstore,
            "kernel": self.kernel,
            "watchdog_panics": self.watchdog_panics,
            "units": self.units,
            "journal": self.journal,
            "received": self.received,
            "certificates": self.certificates,
            "guard": self.guard,
            "serving": self.serving,
            "bandwidth": self.bandwidth,
            "models": self.models,
        }

    def samples(self) -> Iterator[Sample]:
        """Yield all values. A part that cannot be read is reported on stderr, and in a series."""
        for name, part in self.parts.items():
            try:
                found, unread = checked(part()), 0
            except (UnreadError, OSError) as error:
                found, unread = report_unread(name, str(error)), 1
            # A file may have what its reader does not expect. It must not end the other parts.
            except Exception as error:
                found, unread = report_unread(name, f"{type(error).__name__}: {error}"), 1
            yield from found
            yield Sample("sparkrack_node_metrics_unread", {"part": name}, unread)
        yield Sample("sparkrack_node_metrics_timestamp_seconds", {}, time.time())

    def place(self, path: str) -> Path:
        """Return a path of the node, below the folder that stands for /."""
        return Path(self.root + path)

    def text(self, path: str) -> str | None:
        """Return the text of a file; None where there is none. Raises UnreadError."""
        try:
            content = beginning(self.place(path), LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadError(f"{path}: {error.strerror}") from None
        if len(content) > LARGEST:
            raise UnreadError(f"{path}: has more than {LARGEST >> 20} MiB")
        return content.decode(errors="replace").strip()

    def known(self, path: str) -> str:
        """Return the text of a file that every node has. Raises UnreadError."""
        if (found := self.text(path)) is None:
            raise UnreadError(f"{path}: No such file or directory")
        return found

    def record(self, path: str) -> dict[str, Any] | None:
        """Return the content of a JSON file; None where there is none. Raises UnreadError."""
        if (text := self.text(path)) is None:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UnreadError(f"{path}: is not a JSON object")
        return found

    # Parts

    def boot(self) -> Iterator[Sample]:
        """The evidence that this boot has collected of the one before."""
        boot = self.known("/proc/sys/kernel/random/boot_id").replace("-", "")
        evidence = self.record(f"{BLACKBOX}/boots/{boot}/evidence.json")
        yield armed("evidence", evidence is not None)
        if evidence is None:
            return
        records, earlier = evidence.get("pstore"), evidence.get("earlier")
        if isinstance(records, list):
            count = len(records) + (len(earlier) if isinstance(earlier, list) else 0)
            yield Sample("sparkrack_crash_records", {"place": "archive"}, count)
        # The first boot with evidence may know nothing of the one before: there was no unit that would mark its end.
        if isinstance(clean := evidence.get("clean"), bool):
            yield Sample("sparkrack_boot_clean", {}, clean)

    def pstore(self) -> Iterator[Sample]:
        """Records that no boot has archived. Without pstore there are none."""
        folder = self.place("/sys/fs/pstore")
        count = sum(one.name.startswith("dmesg-") for one in folder.iterdir()) if folder.is_dir() else 0
        yield Sample("sparkrack_crash_records", {"place": "pstore"}, count)
        backend = self.text("/sys/module/pstore/parameters/backend")
        yield armed("pstore", backend not in (None, "", "(null)"))

    def kernel(self) -> Iterator[Sample]:
        """The watchdog, what follows a panic, the crash kernel, and netconsole."""
        folders = sorted(self.place("/sys/class/watchdog").glob("watchdog*"))
        states = [self.text(f"/sys/class/watchdog/{one.name}/state") for one in folders]
        yield armed("watchdog", "active" in states)
        yield armed("panic", self.known("/proc/sys/kernel/panic") != "0")
        yield armed("kdump", self.text("/sys/kernel/kexec_crash_loaded") == "1")
        yield armed("netconsole", self.text("/sys/kernel/config/netconsole/sparkrack/enabled") == "1")

    def watchdog_panics(self) -> Iterator[Sample]:
        """Whether the first signal of the watchdog is a panic; nothing of a watchdog that cannot cause one."""
        for folder in sorted(self.place("/sys/class/watchdog").glob("watchdog*")):
            place = f"/sys/class/watchdog/{folder.name}"
            if self.text(f"{place}/identity") != SBSA:
                continue
            log = run("journalctl", "--boot", "--dmesg", "--quiet", "--no-pager", "--output=cat")
            smallest = self.text(f"{place}/min_timeout") or ""
            if logged := FIRST_STAGE.findall(log):
                yield armed("watchdog_panics", logged[-1] == "1")
            elif smallest.isdecimal() and int(smallest) >= RACE_FREE_TIMEOUT:
                yield armed("watchdog_panics", active=False)
            elif any(self.place(path).exists() for path in FIRST_STAGE_FILES):
                raise UnreadError("the kernel's log of this boot no longer has the action of sbsa_gwdt")
            return

    def units(self) -> Iterator[Sample]:
        """Units of the black box, as systemd has them."""
        shown = run("systemctl", "show", "--property=Id,ActiveState", *UNITS)
        states = dict(re.findall(r"^Id=(.+)\nActiveState=(.+)$", shown, re.MULTILINE))
        states |= {unit: state for state, unit in re.findall(r"^ActiveState=(.+)\nId=(.+)$", shown, re.MULTILINE)}
        for unit, part in UNITS.items():
            if unit not in states:
                raise UnreadError(f"systemctl: no answer for {unit}")
            yield armed(part, states[unit] == "active")

    def journal(self) -> Iterator[Sample]:
        """The journal on the disk."""
        path = self.place(f"/var/log/journal/{self.known('/etc/machine-id')}/system.journal")
        yield armed("journal", path.exists())
        if path.exists() and (newest := newest_entry(path)):
            yield Sample("sparkrack_journal_newest_timestamp_seconds", {}, newest)

    def received(self) -> Iterator[Sample]:
        """What other nodes send here: journals, and messages of kernels."""
        journals: dict[str, float] = {}
        folder = self.place("/var/log/journal/remote")
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if (found := RECEIVED.fullmatch(path.name)) and NAME.fullmatch(found[1]):
                journals[found[1]] = max(journals.get(found[1], 0.0), newest_entry(path))
        for name, newest in journals.items():
            yield Sample("sparkrack_journal_received_timestamp_seconds", {"sender": name}, newest)
        messages = self.place(f"{BLACKBOX}/netconsole")
        for path in sorted(one for one in messages.glob("*.log") if NAME.fullmatch(one.stem)):
            # The receiver makes an empty file for each sender, and another one when it begins a new file.
            files = [one.stat() for one in (path, path.with_name(f"{path.name}.1")) if one.exists()]
            newest = max((one.st_mtime for one in files if one.st_size), default=0.0)
            yield Sample("sparkrack_netconsole_received_timestamp_seconds", {"sender": path.stem}, newest)

    def certificates(self) -> Iterator[Sample]:
        """The end of the node's certificate and of that of its CA, where they are."""
        for name, path in CERTIFICATES.items():
            if not self.place(path).exists():
                continue
            shown = run("openssl", "x509", "-noout", "-enddate", "-in", str(self.place(path)))
            try:
                end = ssl.cert_time_to_seconds(shown.strip().removeprefix("notAfter="))
            except ValueError:
                raise UnreadError(f"openssl: unexpected output {shown[:80]!r}") from None
            yield Sample("sparkrack_certificate_expiry_timestamp_seconds", {"certificate": name}, end)

    def guard(self) -> Iterator[Sample]:
        """What the memory guard did."""
        if not self.place(f"/etc/systemd/system/{GUARD}").exists():
            return
        words = ("--boot", "--quiet", "--no-pager", "--output=json", "--output-fields=MESSAGE", "--lines=200")
        for line in reversed(run("journalctl", *words, f"--unit={GUARD}").splitlines()):
            try:
                entry = json.loads(line)
                when, text = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, str(entry.get("MESSAGE"))
            except (ValueError, TypeError, KeyError):
                raise UnreadError(f"journalctl: unexpected output {line[:80]!r}") from None
            if GUARD_KILLS in text:
                yield Sample("sparkrack_memory_guard_kill_timestamp_seconds", {}, when)
                return

    def serving(self) -> Iterator[Sample]:
        """The records of coordinators (serve_coordinator.py), which are on the head of a unit. Those of ranks are
        agents'."""
        for path in sorted(self.place(UNIT_RECORDS).glob("*.json")):
            if path.name.endswith(".rank.json"):
                continue
            found, unit = self.record(f"{UNIT_RECORDS}/{path.name}") or {}, path.stem
            try:
                state, since = label(found["state"]), float(found["since"])
            except (ValueError, TypeError, KeyError):
                raise UnreadError(f"{UNIT_RECORDS}/{path.name}: is not a record of a coordinator") from None
            yield Sample("sparkrack_unit_state", {"state": state, "unit": unit}, 1)
            phases = found.get("phases")
            for phase, times in phases.items() if isinstance(phases, dict) else ():
                if isinstance(times, dict) and isinstance(times.get("seconds"), int | float):
                    labels = {"phase": label(phase), "unit": unit}
                    yield Sample("sparkrack_unit_start_phase_seconds", labels, times["seconds"])
            # A unit that was removed from rack.yaml leaves its record.
            if state not in START_LIMITS or (file := self.record(f"{UNIT_FILES}/{path.name}")) is None:
                continue
            try:
                deadline = since + float(file["times"][START_LIMITS[state]])
            except (ValueError, TypeError, KeyError):
                raise UnreadError(f"{UNIT_FILES}/{path.name}: has no {START_LIMITS[state]}") from None
            yield Sample("sparkrack_unit_start_deadline_timestamp_seconds", {"unit": unit}, deadline)

    def bandwidth(self) -> Iterator[Sample]:
        """The records of what the gates of units have measured (serve_rdma_check.py)."""
        boot = self.known("/proc/sys/kernel/random/boot_id")
        for path in sorted(self.place(PROOFS).glob("*.json")):
            found = self.record(f"{PROOFS}/{path.name}") or {}
            try:
                half, peer = label(found["half"]), label(found["peer"])
                gbps, least = float(found["gbps"]), float(found["least"])
            except (ValueError, TypeError, KeyError):
                raise UnreadError(f"{PROOFS}/{path.name}: is not a record of a measurement") from None
            changes = self.text(f"/sys/class/net/{half}/carrier_changes") or ""
            now = {"boot": boot, "carrier_changes": int(changes)} if changes.isdecimal() else None
            labels = {"device": half, "peer": peer}
            yield Sample("sparkrack_bandwidth_bits_per_second", labels, gbps * 1e9)
            yield Sample("sparkrack_bandwidth_least_bits_per_second", labels, least * 1e9)
            yield Sample("sparkrack_bandwidth_record_current", labels, now is not None and found.get("here") == now)

    def models(self) -> Iterator[Sample]:
        """The files of each model whose sha256 was right, and that have not changed since."""
        for folder in sorted(self.place(MODELS).glob("*")):
            record = folder / ".sparkrack/record"
            if not NAME.fullmatch(folder.name) or folder.is_symlink() or record.is_symlink() or not record.is_file():
                continue
            text = self.text(f"{MODELS}/{folder.name}/.sparkrack/record") or ""
            files = sorted(
                f"{row[1]} {row[3]}"
                for row in map(MODEL_FILE.fullmatch, text.split("\n"))
                if row and unchanged(folder / row[3], int(row[2]), int(row[4]))
            )
            digest = hashlib.sha256("\n".join(files).encode()).hexdigest()[:16]
            yield Sample("sparkrack_model_info", {"digest": digest, "model": folder.name}, 1)


def checked(found: Iterator[Sample]) -> list[Sample]:
    """Return the samples of a part, if the exporter takes them: it refuses a whole file for one that is wrong.

    Raises UnreadError, and what the part itself raises.
    """
    samples: list[Sample] = []
    for one in found:
        if not all(NAME.fullmatch(text) for text in one.labels.values()):
            raise UnreadError(f"{one.series}: a label cannot have the text {tuple(one.labels.values())!a}")
        if any((one.series, one.labels) == (other.series, other.labels) for other in samples):
            raise UnreadError(f"{one.series}: two values for {one.labels}")
        samples.append(Sample(one.series, one.labels, float(one.value)))
    return samples


def report_unread(part: str, reason: str) -> list[Sample]:
    """Print to stderr, in one line, why a part cannot be read; return its samples: none."""
    print(f"node_metrics: {part}: {' '.join(reason.split())[:300]}", file=sys.stderr)
    return []


def beginning(path: Path, size: int) -> bytes:
    """Return at most so many bytes of a file; do not wait for a writer. Raises OSError and UnreadError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnreadError(f"{path.name}: is not a regular file")
        content = b""
        # The kernel refuses a read of 4 MiB or more from a file of /proc/sys.
        while part := file.read(min(size - len(content), 1 << 16)):
            content += part
        return content


def armed(part: str, active: bool) -> Sample:
    """Return whether a part of the black box is active."""
    return Sample("sparkrack_blackbox_armed", {"part": part}, active)


def newest_entry(path: Path) -> float:
    """Return the time of the newest entry of a file of the journal, in seconds; 0 without one. Raises UnreadError."""
    head = beginning(path, JOURNAL_TAIL + 8)
    if not head.startswith(JOURNAL_MAGIC) or len(head) < JOURNAL_TAIL + 8:
        raise UnreadError(f"{path.name}: is not a file of the journal")
    return int.from_bytes(head[JOURNAL_TAIL:], "little") / 1e6


def unchanged(path: Path, size: int, changed: int) -> bool:
    """Return whether a file is as it was when its sha256 was right."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, changed)


def label(value: object) -> str:
    """Return a value that can stand in a label. Raises ValueError for any other."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(value)
    return value


def run(*command: str) -> str:
    """Return the output of a command. Raises UnreadError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadError(f"{command[0]}: {getattr(error, 'strerror', None) or 'no answer in time'}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise UnreadError(f"{command[0]}: {lines[-1][:200]}")
    return done.stdout.decode(errors="replace")


def text_format(samples: list[Sample]) -> str:
    """Return the samples as Prometheus reads them, those of a series together."""
    lines = []
    for series, text in HELP.items():
        own = [one for one in samples if one.series == series]
        lines += [f"# HELP {series} {text}", f"# TYPE {series} gauge"] if own else []
        for one in own:
            labels = ",".join(f'{key}="{value}"' for key, value in one.labels.items())
            lines.append(f"{series}{f'{{{labels}}}' if labels else ''} {float(one.value):.16g}")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file that all may read; a reader sees the old or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="ascii")
    new.chmod(0o644)
    new.replace(path)


def main() -> int:
    """Read everything and write the file."""
    parser = argparse.ArgumentParser(description="Metrics of what a node knows of itself.", allow_abbrev=False)
    parser.add_argument(
        "--metrics", type=Path, required=True, help="file for the textfile collector, which ends in .prom"
    )
    parser.add_argument("--root", default="", help="the folder that stands for /, for tests")
    given = parser.parse_args()
    try:
        write(given.metrics, text_format(list(Node(given.root).samples())))
    except OSError as error:
        print(f"node_metrics: {given.metrics}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
