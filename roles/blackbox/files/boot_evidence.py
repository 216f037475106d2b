#!/usr/bin/python3
"""Evidence about the end of the boot before this one.

    boot_evidence.py begin      before all services: write that this boot began
    boot_evidence.py mark       at the end of a shutdown: write that this boot ended in order
    boot_evidence.py collect    early after a boot: write boots/BOOT/evidence.json, and keep the last 20

`begin` and `mark` run as the ExecStart= and ExecStop= of a unit that systemd starts before all services and stops after
them. `begin` adds the boot to boots.json, which no age limits: the boot before is the one in front of it there, also
when that boot left no journal, and a record of a panic belongs to the boot before the first one that saw it. `mark`
writes nothing unless systemd is stopping: a unit that is stopped by hand is not a shutdown, and neither is a soft
reboot, which keeps the boot. `collect` writes what it finds. A value that cannot be read is null, and `unread` has the
reason.

Standard library only, Python 3.10 or later. Fields of evidence.json (times are seconds since 1970, by this machine):

    schema        "sparkrack.boot-evidence/1"
    boot          ID of this boot, 32 hexadecimal digits; began: its time; made: the time of the collection
    before        ID of the boot before, by boots.json, the journal or the mark; null: unknown
    clean         whether the boot before ended with a shutdown, and nothing says otherwise: its mark, or the last
                  words of systemd in its journal, with no program that wrote later, no record of a panic, no reset by
                  a watchdog, and at most `pause_limit` seconds before this boot unless it was for a power-off;
                  null: nothing is known of it
    pause_limit   the most seconds between a shutdown and this boot that show no other boot between them: what is usual
                  on this node and half of it more, at most 300
    marker        {"boot", "time", "target"}: the mark of the boot before; null: there is none
    journal       {"first", "last", "lines": [{"time", "source", "text"}]}: its end, and earlier lines that matter
    pstore        [{"name", "time", "sha256", "text"}]: records of the boot before, which this boot was the first to see
    earlier       names of records that the boot before was the first to see; it collected no evidence
    watchdogs     [{"name", "identity", "bootstatus", "timeout"}]; kernel: lines of this boot about a reset by one
    hardware      lines of this boot about errors of the hardware before it, as the firmware reports them
    feeding       seconds after which systemd has the watchdog reset this node; 0: it feeds none; shutdown_limit: the
                  same for a shutdown
    bert          {"sha256", "words"}: the error record of the firmware, stored as bert.bin; null: there is none
    nvme          {device: {"unsafe_shutdowns", "power_cycles"}}; nvme_before: the same at the boot before
    unread        {part: reason}
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCHEMA = "sparkrack.boot-evidence/1"
FOLDER = "/var/lib/sparkrack/blackbox"
ARCHIVE = "/var/lib/systemd/pstore"
MARKER = "clean-stop.json"
BOOTS = "boots.json"
KEPT_NAMES = 1000
"""Boots whose ID and time are kept."""
KEPT = 20
"""Boots whose evidence is kept."""
LAST_LINES = 2000
"""Lines of the end of a journal that are read."""
KEPT_LINES = 200
"""Lines of the end that are kept, and as many of the lines before them that matter."""
LINE_CHARACTERS = 1000
RECORD_BYTES = 64 << 10
"""Bytes of the end of a record in the archive of pstore that are kept."""
BERT_BYTES = 64 << 10
COMMAND_SECONDS = 60
BOOT = re.compile(r"[0-9a-f]{32}")
MATTERS = re.compile(
    r"NV_ERR_NO_MEMORY|Kernel panic|Oops|BUG:|soft lockup|rcu.*stall|Xid|watchdog|Freezing execution|Out of memory"
    r"|Hardware Error|The system will|Reached target .*(?:[Rr]eboot|[Pp]ower|[Hh]alt|[Ss]hutdown)|Shutting down"
)
RESET = re.compile(r"System reset by WDT|reset by (?:the )?watchdog", re.IGNORECASE)
HARDWARE = re.compile(r"BERT: (?:Error|\[Hardware)|\[Hardware Error\]")
"""A line of BERT, the firmware's record of errors before this boot. An error of this boot has a number before it."""
HARDWARE_LINES = 40
CARDRESET = 32
"""Bit of bootstatus: the watchdog reset the machine (linux/watchdog.h)."""
SHUT_DOWN = re.compile(
    r"Reached target .*(?<!soft-)(reboot|poweroff|power-off|halt|kexec)\.target|^Shutting down\.$", re.I
)
SHUT_DOWN_LINES = 60
"""Lines of the end of a journal in which the end of a shutdown is looked for."""
LIVES_ON_SECONDS = 10.0
"""A program that writes so much later than a shutdown shows that the boot went on."""
POST_SECONDS = 300.0
"""Seconds that the firmware of a GB10 may take from a reset to the kernel, where it is unknown what this one takes."""
USUAL_PAUSES = 9
"""Pauses between a shutdown and the next boot, the last ones, of which the middle one is the usual one."""
LEAST_PAUSES = 3
"""So many are needed to know it."""
PAUSE_FACTOR, PAUSE_SECONDS = 1.5, 30.0
"""What a pause may take more than usual: a boot that dies at once makes it twice as long."""
CLOCK_SECONDS = 5.0
"""Seconds by which the clock may step back over a reboot."""
LAST_WORDS = ("kernel", "audit", "systemd", "/dev/kmsg")
"""Who writes on after all services have ended."""
STAYS_OFF = ("poweroff", "power-off", "halt")
"""Ends of a boot after which the next one may begin at any time."""
SPANS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 0.001}


class UnreadError(Exception):
    """A part cannot be read; the text is the reason, in one line."""


class Evidence:
    """What one boot finds. `root`: the folder that stands for /, in tests."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.folder = self.place(FOLDER)
        self.boot = self.text("/proc/sys/kernel/random/boot_id").replace("-", "")
        self.unread: dict[str, str] = {}

    def place(self, path: str) -> Path:
        """Return a path of the node, below the folder that stands for /."""
        return Path(self.root + path)

    def text(self, path: str) -> str:
        """Return the text of a file. Raises UnreadError."""
        try:
            return self.place(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise UnreadError(f"{path}: {error.strerror}") from None

    def mark(self) -> None:
        """Write that this boot ends in order, if systemd is stopping."""
        if run("systemctl", "is-system-running", codes=(0, 1)).strip() != "stopping":
            print("systemd is not stopping: no mark is written")
            return
        jobs = run("systemctl", "list-jobs", "--no-legend", "--plain")
        targets = re.findall(r"\b(soft-reboot|reboot|poweroff|halt|kexec)\.target\b", jobs)
        if targets[:1] == ["soft-reboot"]:
            print("a soft reboot keeps this boot: no mark is written")
            return
        mark = {"boot": self.boot, "time": time.time(), "target": targets[0] if targets else None}
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        write(self.folder / MARKER, json.dumps(mark).encode() + b"\n")

    def begin(self) -> dict[str, Any]:
        """Write that this boot began, and return all that is known of boots; a second call adds what is new.

        A mark of this boot goes: it goes on. Raises UnreadError.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        log, earlier = self.log(), evidences(self.folder / "boots")
        boots = (
            log["boots"]
            if log
            else [
                {"boot": one["boot"], "began": one["began"], "pause": 0.0}
                for one in earlier
                if isinstance(one.get("boot"), str) and isinstance(one.get("began"), float)
            ]
        )
        if self.boot not in [one["boot"] for one in boots]:
            boots = [*boots, {"boot": self.boot, "began": time.time(), "pause": 0.0}]
        known: dict[str, str | None] = log["records"] if log else {}
        # The first call ever: what earlier evidence has is old, and without any what was archived before this boot.
        seen = {name for one in earlier if one.get("boot") != self.boot for name in record_names(one)}
        archived = self.archived()
        since = 0.0 if log or earlier or not archived else self.began()
        records = {
            name: known.get(name, self.boot if log or (name not in seen and at >= since) else None)
            for name, at in archived.items()
        }
        found = {"boots": boots[-KEPT_NAMES:], "records": records}
        if found != log:
            write(self.folder / BOOTS, json.dumps(found).encode() + b"\n")
        try:
            mark = self.marker()
        except UnreadError:
            mark = None  # `collect` reports it
        if mark and mark["boot"] == self.boot:
            (self.folder / MARKER).unlink()
        return found

    def log(self) -> dict[str, Any] | None:
        """Return the boots in their order, and the boot that was the first to see each record; None without a log."""
        try:
            found = json.loads((self.folder / BOOTS).read_bytes())
            boots = [
                {"boot": str(one["boot"]), "began": float(one["began"]), "pause": float(one.get("pause", 0))}
                for one in found["boots"]
            ]
            records = {str(name): boot if isinstance(boot, str) else None for name, boot in found["records"].items()}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadError(f"{self.folder / BOOTS}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.unread["boots"] = f"{self.folder / BOOTS}: is not what `begin` writes; it begins again"
            return None
        return {"boots": boots, "records": records}

    def archived(self) -> dict[str, float]:
        """Return the names of the records in the archive of pstore, and their times."""
        archive, found = self.place(ARCHIVE), {}
        for path in sorted([*archive.rglob("dmesg.txt"), *archive.rglob("dmesg-*.enc.z")]):
            name = str(path.relative_to(archive))
            try:
                if path.is_file():
                    found[name] = path.stat().st_mtime
            except OSError as error:
                raise UnreadError(f"{ARCHIVE}/{name}: {error.strerror}") from None
        return found

    def collect(self) -> None:
        """Write the evidence, and remove that of old boots. A second call in the same boot replaces nothing."""
        boots = self.folder / "boots"
        own = boots / self.boot
        if (own / "evidence.json").exists():
            print(f"boot {self.boot} has its evidence")
            return
        own.mkdir(parents=True, exist_ok=True, mode=0o750)
        earlier = evidences(boots)
        latest, part = earlier[-1] if earlier else {}, self.part
        began = part("began", self.began)
        marker = part("marker", self.marker)
        journal = part("journal", self.journal)
        log = part("boots", self.begin)
        order = log["boots"] if log else []
        before = self.boot_before(order, journal) or (marker or {}).get("boot")
        if journal and journal.pop("boot") != before:
            self.unread["journal"] = f"it ends with a boot that is older than boot {before}, which ended last"
            journal = None
        reset, hardware = part("kernel", self.kernel) or (None, None)
        is_known = any(one["boot"] == before for one in order)
        unseen = is_known and not (boots / str(before) / "evidence.json").exists()
        found = {
            "schema": SCHEMA,
            "boot": self.boot,
            "began": began,
            "made": time.time(),
            "before": before,
            "clean": None,
            "pause_limit": pause_limit([one["pause"] for one in order if one["pause"] > 0]),
            "marker": marker if marker and before == marker["boot"] else None,
            "journal": journal,
            "pstore": part("pstore", lambda: self.pstore(first_seen(log, self.boot))) if log else None,
            "earlier": first_seen(log, before) if unseen else [],
            "watchdogs": part("watchdogs", self.watchdogs),
            "kernel": reset,
            "hardware": hardware,
            "feeding": part("feeding", lambda: limit("RuntimeWatchdogUSec")),
            "shutdown_limit": part("shutdown_limit", lambda: limit("RebootWatchdogUSec")),
            "bert": part("bert", lambda: self.bert(own)),
            "nvme": part("nvme", self.nvme),
            "nvme_before": latest.get("nvme") if latest.get("boot") == before else None,
            "unread": self.unread,
        }
        if before or earlier:
            pause = pause_after_shutdown(found)
            found["clean"] = pause is not None and pause <= found["pause_limit"]
            if pause and log:
                boots_now = [{**one, "pause": pause} if one["boot"] == self.boot else one for one in order]
                write(self.folder / BOOTS, json.dumps({**log, "boots": boots_now}).encode() + b"\n")
        write(own / "evidence.json", json.dumps(found, indent=1).encode() + b"\n")
        (self.folder / MARKER).unlink(missing_ok=True)
        self.remove_old(boots)

    def part(self, name: str, read: Callable[[], Any]) -> Any:
        """Return a part of the evidence; None for one that cannot be read, which is noted with the reason."""
        try:
            return read()
        except UnreadError as error:
            self.unread[name] = str(error)
            return None

    def remove_old(self, boots: Path) -> None:
        """Remove the evidence of boots but for the newest, and that of this boot."""
        for old in sorted(boots.iterdir(), key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
            if BOOT.fullmatch(old.name) and old.name != self.boot:
                shutil.rmtree(old, ignore_errors=True)

    def began(self) -> float:
        """Return the time of this boot."""
        return time.time() - float(self.text("/proc/uptime").split()[0])

    def marker(self) -> dict[str, Any] | None:
        """Return the mark of the boot before; None where there is none."""
        try:
            content = (self.folder / MARKER).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadError(f"{self.folder / MARKER}: {error.strerror}") from None
        try:
            mark = json.loads(content)
            boot, when, target = mark["boot"], float(mark["time"]), mark["target"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UnreadError(f"{self.folder / MARKER}: is not what `mark` writes") from None
        if not isinstance(boot, str) or not BOOT.fullmatch(boot):
            raise UnreadError(f"{self.folder / MARKER}: has no boot ID")
        return {"boot": boot, "time": when, "target": target if isinstance(target, str) else None}

    def boot_before(self, boots: list[dict[str, Any]], journal: dict[str, Any] | None) -> str | None:
        """Return the boot before this one: the last one that wrote that it began, or that of the journal when it is
        newer, because it did not come so far; None where neither is known.
        """
        before: dict[str, Any] = next((one for one in reversed(boots) if one["boot"] != self.boot), {})
        if not journal or (before and journal["last"] <= before["began"]):
            return before.get("boot")
        is_known = any(one["boot"] == journal["boot"] for one in boots)
        return before.get("boot") if is_known else str(journal["boot"])

    def journal(self) -> dict[str, Any]:
        """Return the end of the journal of the boot before."""
        output = run("journalctl", "--boot=-1", "--output=json", f"--lines={LAST_LINES}", "--quiet", "--no-pager")
        lines, boots = [], set[str]()
        # Not splitlines: JSON may have line separators of Unicode inside of a text.
        for entry in filter(None, map(entry_of, output.split("\n"))):
            boots.add(entry.pop("boot"))
            lines.append(entry)
        if not lines or len(boots) != 1:
            raise UnreadError("journalctl has no entry of the boot before")
        early = [line for line in lines[:-KEPT_LINES] if MATTERS.search(line["text"])][-KEPT_LINES:]
        return {
            "boot": boots.pop(),
            "first": lines[0]["time"],
            "last": lines[-1]["time"],
            "lines": [*early, *lines[-KEPT_LINES:]],
        }

    def pstore(self, names: list[str]) -> list[dict[str, Any]]:
        """Return these records of the archive.

        What the kernel could not decompress is archived as it was, and may be damaged.
        """
        archive = self.place(ARCHIVE)
        found = []
        for name in names:
            path = archive / name
            try:
                stat, content = path.stat(), path.read_bytes()
            except OSError as error:
                raise UnreadError(f"{ARCHIVE}/{name}: {error.strerror}") from None
            text = inflated(content) if path.suffix == ".z" else content[-RECORD_BYTES:]
            if path.suffix == ".z" and not text:
                self.unread["pstore"] = f"{ARCHIVE}/{name}: is compressed, and cannot be decompressed"
            found.append(
                {
                    "name": name,
                    "time": stat.st_mtime,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "text": text.decode(errors="replace"),
                }
            )
        return found

    def watchdogs(self) -> list[dict[str, Any]]:
        """Return the watchdogs, with the status that their hardware has kept over the reset."""
        found = []
        for folder in sorted(self.place("/sys/class/watchdog").glob("watchdog*")):
            values: dict[str, Any] = {"name": folder.name}
            for name in ("identity", "bootstatus", "timeout"):
                try:
                    text = (folder / name).read_text(errors="replace").strip()
                except OSError:
                    text = ""
                values[name] = text or None if name == "identity" else int(text) if text.isdecimal() else None
            found.append(values)
        return found

    def kernel(self) -> tuple[list[str], list[str]]:
        """Return the lines of the kernel in this boot about a reset by a watchdog, and about errors of the hardware."""
        # --facility: what a program writes to /dev/kmsg has another one, always.
        words = ("--boot=0", "--dmesg", "--facility=kern", "--output=cat", "--quiet", "--no-pager")
        lines = [line[:LINE_CHARACTERS] for line in run("journalctl", *words).splitlines()]
        hardware = [line for line in lines if HARDWARE.match(line)][:HARDWARE_LINES]
        return [line for line in lines if RESET.search(line)], hardware

    def bert(self, own: Path) -> dict[str, Any] | None:
        """Return the hash and the 32-bit words of the firmware's error record, and store it raw; None without one."""
        path = "/sys/firmware/acpi/tables/data/BERT"
        try:
            with self.place(path).open("rb") as file:
                content = file.read(BERT_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadError(f"{path}: {error.strerror}") from None
        write(own / "bert.bin", content)
        words = [f"{int.from_bytes(content[at : at + 4], 'little'):#x}" for at in range(0, min(len(content), 256), 4)]
        return {"sha256": hashlib.sha256(content).hexdigest(), "words": words}

    def nvme(self) -> dict[str, dict[str, int]]:
        """Return the counters of each NVMe disk, as smartctl or nvme reports them."""
        found = {}
        for device in sorted(path.name for path in self.place("/sys/class/nvme").glob("nvme*")):
            if shutil.which("smartctl"):
                # Its exit status is a set of bits about the disk's health.
                output = run("smartctl", "--json", "--all", f"/dev/{device}", codes=None)
            elif shutil.which("nvme"):
                output = run("nvme", "smart-log", f"/dev/{device}", "--output-format=json")
            else:
                raise UnreadError("neither smartctl nor nvme is installed")
            try:
                answer = json.loads(output)
                log = answer.get("nvme_smart_health_information_log", answer)
                found[device] = {name: int(log[name]) for name in ("unsafe_shutdowns", "power_cycles")}
            except (ValueError, TypeError, KeyError, AttributeError):
                raise UnreadError(f"/dev/{device}: no counters in the answer") from None
        return found


def entry_of(line: str) -> dict[str, Any] | None:
    """Return one entry of journalctl's JSON; None for a line that is none."""
    try:
        entry = json.loads(line)
        return {
            "boot": str(entry["_BOOT_ID"]),
            "time": int(entry["__REALTIME_TIMESTAMP"]) / 1e6,
            "source": source_of(entry)[:80],
            "text": message_of(entry.get("MESSAGE", ""))[:LINE_CHARACTERS],
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def source_of(entry: dict[str, Any]) -> str:
    """Return what wrote an entry: `kernel` and `systemd` only where no program can have written it.

    Each program chooses its SYSLOG_IDENTIFIER. What root writes to /dev/kmsg has the transport of the kernel, and never
    its facility, 0 (kernel/printk/printk.c, devkmsg_write).
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


def message_of(value: Any) -> str:
    """Return the text of an entry: journalctl prints several as a list, what is not a text as a list of its bytes, and
    null for one that is too long.
    """
    if value is None:
        return "(journalctl leaves out a text of this length)"
    if isinstance(value, list):
        texts = [message_of(one) for one in value if not isinstance(one, int)]
        return "; ".join(texts) if texts else bytes(value).decode(errors="replace")
    return str(value)


def inflated(content: bytes) -> bytes:
    """Return the beginning of a compressed record of pstore, as far as it can be read."""
    inflate, found = zlib.decompressobj(-zlib.MAX_WBITS), b""
    try:
        for at in range(0, len(content), 16):
            found += inflate.decompress(content[at : at + 16], RECORD_BYTES)
            if len(found) >= RECORD_BYTES:
                break
    except zlib.error:
        pass
    return found[:RECORD_BYTES]


def limit(name: str) -> float:
    """Return the seconds after which systemd has the hardware reset this node; 0: it feeds no watchdog then."""
    shown = run("systemctl", "show", f"--property={name}", "--value").strip()
    if shown == "0" or shown == "infinity":
        return 0.0
    spans = re.findall(r"([0-9]+)(min|ms|h|s)", shown)
    if not spans:
        raise UnreadError(f"{name} of systemd: {shown[:40]!r}")
    return sum(int(number) * SPANS[unit] for number, unit in spans)


def run(*command: str, codes: tuple[int, ...] | None = (0,)) -> str:
    """Return the output of a command. Raises UnreadError; also for an exit status that is not in `codes`."""
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
    if codes is not None and done.returncode not in codes:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise UnreadError(f"{command[0]}: {lines[-1][:200]}")
    return done.stdout.decode(errors="replace")


def pause_limit(pauses: list[float]) -> float:
    """Return the most seconds between a shutdown and this boot that show no other boot between them."""
    if len(pauses) < LEAST_PAUSES:
        return POST_SECONDS
    return min(POST_SECONDS, PAUSE_FACTOR * statistics.median(pauses[-USUAL_PAUSES:]) + PAUSE_SECONDS)


def pause_after_shutdown(found: dict[str, Any]) -> float | None:
    """Return the seconds between the shutdown of the boot before and this boot, 0 after one that lets the node stay
    off; None where there was none, where anything says otherwise, and for more seconds than any firmware takes.
    """
    lines = (found["journal"] or {}).get("lines", [])
    if marker := found["marker"]:
        at, target = marker["time"], marker["target"]
    else:
        ends = [
            (line["time"], match[1])
            for line in lines[-SHUT_DOWN_LINES:]
            if line["source"] == "systemd" and (match := SHUT_DOWN.search(line["text"]))
        ]
        if not ends:
            return None
        at, target = ends[0]
    programs = (line for line in lines if not line["source"].startswith(LAST_WORDS))
    lived_on = any(line["time"] > at + LIVES_ON_SECONDS for line in programs)
    reset = any((one["bootstatus"] or 0) & CARDRESET for one in found["watchdogs"] or ())
    # Nothing that could not be read is taken for an end in order.
    if lived_on or reset or found["kernel"] != [] or found["pstore"] != [] or found["began"] is None:
        return None
    pause = float(found["began"] - at)
    if pause < -CLOCK_SECONDS:
        return None
    if str(target).lower() in STAYS_OFF:
        return 0.0
    return max(0.0, pause) if pause <= POST_SECONDS else None


def first_seen(log: dict[str, Any], boot: str | None) -> list[str]:
    """Return the names of the records that a boot was the first to see."""
    return [name for name, first in log["records"].items() if first == boot and boot]


def record_names(evidence: dict[str, Any]) -> set[str]:
    """Return the names of the records of panics that a boot has seen. What is of another form has none."""
    records = evidence.get("pstore")
    names = [one.get("name") for one in records if isinstance(one, dict)] if isinstance(records, list) else []
    return {name for name in names if isinstance(name, str)}


def evidences(boots: Path) -> list[dict[str, Any]]:
    """Return the readable evidence of earlier boots, oldest first."""
    found = []
    for path in boots.glob("*/evidence.json"):
        try:
            one = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(one, dict) and isinstance(one.get("made"), float):
            found.append(one)
    return sorted(found, key=lambda one: one["made"])


def write(path: Path, content: bytes) -> None:
    """Write a file for root alone; after a power cut it is whole or absent."""
    part = path.with_name(f"{path.name}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description="Evidence about the end of the boot before this one.")
    parser.add_argument("command", choices=("begin", "mark", "collect"))
    parser.add_argument("--root", default="", help="the folder that stands for /, for tests")
    given = parser.parse_args()
    try:
        evidence = Evidence(given.root)
        if given.command == "begin":
            evidence.begin()
        elif given.command == "mark":
            evidence.mark()
        else:
            evidence.collect()
    except (UnreadError, OSError) as error:
        print(f"boot_evidence: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
