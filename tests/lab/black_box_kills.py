"""Kills the kernel of a node of the virtual rack while it writes, several times, and measures what each witness kept:

    python -m tests.lab.black_box_kills --kills 10 --docs
    python -m tests.lab.black_box_kills --starved --kills 5 --docs

A program on the node counts ten times a second, into its journal, its kernel's log and a file of this machine, which is
the truth: what is in it was counted. With --starved the node has little memory left, or writes to its disk without a
pause, for some seconds before the kill. docs/evidence/blackbox-acceptance.md describes what is measured and how. Needs
root.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from tests.lab import black_box
from tests.lab.converged import converged
from tests.lab.virtual import REPOSITORY, VirtualRack

NODES = ("spark1", "spark2", "spark3")
NODE, RECEIVER = "spark3", "spark1"
PAGE, RECORD = REPOSITORY / "docs/evidence/blackbox-acceptance.md", REPOSITORY / "docs/bench/black-box-kills.json"
STARVED_RECORD = REPOSITORY / "docs/bench/black-box-kills-starved.json"
SCHEMA = "sparkrack.black-box-kills/1"
BEGIN, END = "<!-- generated: {} -->\n", "<!-- end -->"
FRESH = 16
"""Seconds after which the autopsy no longer takes the last sample for a sign of life."""
WITNESSES = {
    "own ring": "samples on the disk of the node itself",
    "own journal": "`journalctl --boot=-1` after the next boot",
    "remote ring": "samples, as the receiver has them",
    "remote journal": "the journal, as the receiver has it",
    "netconsole": "messages of the kernel, as the receiver has them",
    "switch": "the time at which the leg went down, in whole seconds",
}
"""What each has, for the table."""
LEFT = 64 << 20
"""Bytes of memory that a node has left where it has little."""
_LITTLE_MEMORY = """\
sync; echo 3 > /proc/sys/vm/drop_caches
while read -r name value _; do [ $name = MemFree: ] && free=$value; done < /proc/meminfo
echo $((free - LEFT)) > /proc/sys/vm/min_free_kbytes
echo 1000 > /proc/self/oom_score_adj
while true; do python3 -Ic "import time; held = b'x' * (512 << 20); time.sleep(60)"; done
"""
STARVE = {
    "64 MiB left": _LITTLE_MEMORY.replace("LEFT", str(LEFT // 1024)),
    "no memory left": _LITTLE_MEMORY.replace("LEFT", "0"),
    "busy disk": """\
for number in 1 2 3 4; do
    while true; do dd if=/dev/zero of=/var/tmp/load-$number bs=1M count=128 conv=notrunc,fsync 2> /dev/null; done &
    while true; do dd if=/dev/zero of=/var/tmp/load-small-$number bs=4k count=999 oflag=dsync 2> /dev/null; done &
done
while true; do sync; done
""",
}
"""Programs that starve a node: of memory, of which all but LEFT, or all, is set aside for the kernel
(vm.min_free_kbytes), while a program that wants more is ended and started again; and of its disk, to which eight
programs write and wait, while another writes out all that waits.
"""
STARVED_SECONDS = (15, 20)
"""Seconds for which a node is starved before its kill, any value of these."""
COUNTER = """\
import ctypes, os, socket, sys, time

def journal():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.setblocking(False)  # a journald that stands still must not stop the count
    one.connect("/dev/log")
    return one

ctypes.CDLL(None).mlockall(3)

log, number, name = journal(), 0, sys.argv[1]
with open("/lab/counted", "w") as truth, open("/dev/kmsg", "w") as kernel:
    while True:
        number += 1
        now = time.time()
        try:
            log.send(f"<13>counter: counted {name} {number}".encode())
        except BlockingIOError:
            pass
        except OSError:  # journald was restarted
            log = journal()
        kernel.write(f"<4>counted {name} {number}")
        kernel.flush()
        truth.write(f"{number} {now:.3f}\\n")
        truth.flush()
        with open("/proc/pressure/io") as waits, open("/lab/waits.new", "w") as shown:
            shown.write(waits.read())
        os.replace("/lab/waits.new", "/lab/waits")
        time.sleep(0.1)
"""
OWN = "journalctl _BOOT_ID={} -q -o cat -n 300"
REMOTE = f"journalctl -D /var/log/journal/remote _HOSTNAME={NODE} -q -o cat -n 300"
CONSOLE = f"tail -n 100 /var/lib/sparkrack/blackbox/netconsole/{NODE}.log"
Kill = dict[str, Any]
T = TypeVar("T")


def make_parser(program: str, about: str, record: Path | None) -> argparse.ArgumentParser:
    """The options of a program that ends boots and adds to a record."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("--again", action="store_true", help="begin a new record")
    parser.add_argument("--record", type=Path, default=record, help="JSON of each; further ones are added")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".lab-kills", help="folder of the virtual rack")
    parser.add_argument("--docs", action="store_true", help="renew the table of docs/evidence/blackbox-acceptance.md")
    return parser


@contextmanager
def armed_rack(parser: argparse.ArgumentParser, folder: Path) -> Iterator[tuple[VirtualRack, Path]]:
    """A virtual rack, and its rack file with a black box, applied. The lab is gone afterwards."""
    if os.geteuid():
        parser.error("needs root, for the virtual rack")
    rack = VirtualRack(folder.resolve(), NODES)
    try:
        converged(rack.folder, NODES)
        with black_box.section(rack) as file:
            yield rack, file
    finally:
        rack.lab("down")


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    parser = make_parser("black_box_kills", "Kill a node, and measure its witnesses.", None)
    parser.add_argument("--kills", type=int, default=10, help="kills that the record has in the end (%(default)s)")
    parser.add_argument("--starved", action="store_true", help="kill a starved node; --kills of each kind")
    given = parser.parse_args(words)
    record = given.record or (STARVED_RECORD if given.starved else RECORD)
    found: list[Kill] = [] if given.again or not record.exists() else read(record)
    kinds = [
        kind for kind in (STARVE if given.starved else ("",)) for _ in range(given.kills - _count_kills(found, kind))
    ]
    if kinds:
        with armed_rack(parser, given.folder) as (rack, file):
            for kind in kinds:
                found.append(kill(rack, file, kind)[0])
                record.write_text(json.dumps({"schema": SCHEMA, "kills": found}, indent=1) + "\n")
                print(json.dumps(found[-1]), flush=True)
    if given.docs:
        write_table(*(("starved", starved_table(found)) if given.starved else ("kills", table(found))))
    return 0


def _count_kills(kills: Sequence[Kill], kind: str) -> int:
    """The number of kills of a kind: how the node was starved, empty for not at all."""
    return sum(one.get("starved", "") == kind for one in kills)


def write_table(name: str, text: str) -> None:
    """Put a generated block into the page."""
    page, mark = PAGE.read_text(), BEGIN.format(name)
    begin = page.index(mark) + len(mark)
    PAGE.write_text(page[:begin] + text + page[page.index(END, begin) :])


def read(record: Path, schema: str = SCHEMA, key: str = "kills") -> list[dict[str, Any]]:
    """The entries of a record."""
    found = json.loads(record.read_text())
    assert found["schema"] == schema, f"{record}: not {schema}"
    entries: list[dict[str, Any]] = found[key]
    return entries


def table(kills: Sequence[Kill]) -> str:
    """The table of the page: seconds lost, median and worst."""
    lines = [
        "",
        f"Seconds lost in {len(kills)} kills; load of the machine {_format_span([one['load'] for one in kills])}.",
        "",
        "| witness | what it has | median | worst | in kill |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, text in WITNESSES.items():
        lost = [_lost_seconds(one, name) for one in kills]
        worst = max(range(len(lost)), key=lost.__getitem__)
        digits = 0 if name == "switch" else 1
        whole = "all of " if lost[worst] >= _counted_seconds(kills[worst]) else ""
        median = statistics.median(lost)
        lines.append(f"| {name} | {text} | {median:.{digits}f} | {whole}{lost[worst]:.{digits}f} | {worst + 1} |")
    verdicts = [
        f"`{one['verdict']}`" + (f", {one['confidence']} confidence" if one["confidence"] else "") for one in kills
    ]
    counted = [f"{verdicts.count(one)} times {one}" for one in dict.fromkeys(verdicts)]
    return "\n".join([*lines, "", f"Verdict while the node was dead: {'; '.join(counted)}.", "", ""])


def starved_table(kills: Sequence[Kill]) -> str:
    """The table of the kills of starved nodes: seconds lost, median and worst, by how they were starved."""
    kinds = list(dict.fromkeys(one["starved"] for one in kills))
    lines = [
        "",
        "; ".join(f"{kind}: {_count_kills(kills, kind)} kills" for kind in kinds)
        + f"; load of the machine {_format_span([one['load'] for one in kills])}.",
        "",
        f"| witness |{''.join(f' {kind}: median | worst |' for kind in kinds)}",
        f"| --- |{' --- | --- |' * len(kinds)}",
    ]
    for name in WITNESSES:
        digits, cells = 0 if name == "switch" else 1, ""
        for kind in kinds:
            lost = [_lost_seconds(one, name) for one in kills if one["starved"] == kind]
            cells += f" {statistics.median(lost):.{digits}f} | {max(lost):.{digits}f} |"
        lines.append(f"| {name} |{cells}")
    return "\n".join([*lines, "", ""])


def _lost_seconds(kill: Kill, name: str) -> float:
    """The seconds that a witness lost in a kill: all that were counted where it has none of them."""
    lost: float | None = kill["lost"][name]
    return _counted_seconds(kill) if lost is None else min(abs(lost), _counted_seconds(kill))


def _counted_seconds(kill: Kill) -> float:
    """The seconds from the first count to the last; the first records do not have them."""
    return float(kill.get("counted", math.inf))


def _format_span(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def kill(rack: VirtualRack, file: Path, starved: str = "") -> tuple[Kill, dict[str, Any]]:
    """Kill the node while it counts, look at each witness, and start it again. Returns what was lost, and the autopsy
    of the dead node. `starved`: of what the node has too little, a key of STARVE.
    """
    shared = rack.paths.node(NODE) / "shared"
    before = rack.ssh(NODE, black_box.BOOT).strip()
    word = secrets.token_hex(4)  # so that lines of an earlier kill do not count
    _start_counter(rack, shared, word)
    if starved:
        (shared / "starve.sh").write_text(STARVE[starved])
        rack.ssh(NODE, "systemd-run --quiet --unit=starve --collect sh /lab/starve.sh")
    time.sleep(random.uniform(*(STARVED_SECONDS if starved else (10, 14))))  # noqa: S311 - any phase of a second
    died = black_box.kill(rack, NODE)
    load = os.getloadavg()[0]
    truth = {int(number): float(at) for number, at in _split_counter_lines((shared / "counted").read_text())}
    last = truth[max(truth)]
    assert abs(died - last) < 5, f"the counter stood still {died - last:.1f} s before the kill"
    time.sleep(3)  # for what is on its way
    lost: dict[str, float | None] = {
        "remote ring": _seconds_to_last_count(
            _time_of_newest_sample(rack, RECEIVER, f"{black_box.PEERS}/{NODE}.ring", before), truth
        ),
        "remote journal": _seconds_to_last_count(_time_of(_last_count(rack, RECEIVER, REMOTE, word), truth), truth),
        "netconsole": _seconds_to_last_count(_time_of(_last_count(rack, RECEIVER, CONSOLE, word), truth), truth),
    }
    time.sleep(max(0.0, died + FRESH - time.time()))
    found = black_box.autopsy(rack, file, NODE)
    down = _leg_down(found, died)
    lost["switch"] = None if down is None else down - died
    rack.lab("up", "--nodes", str(len(NODES)))
    black_box.back(rack, NODE, before)
    rack.ssh(NODE, "rm -f /var/tmp/load-*")
    lost["own ring"] = _seconds_to_last_count(_time_of_newest_sample(rack, NODE, black_box.RING, before), truth)
    lost["own journal"] = _seconds_to_last_count(
        _time_of(_last_count(rack, NODE, OWN.format(before), word), truth), truth
    )
    rounded = {name: None if (seconds := lost[name]) is None else round(seconds, 2) for name in WITNESSES}
    return {
        "made": datetime.fromtimestamp(died).astimezone().isoformat(timespec="seconds"),
        "load": round(load, 1),
        "verdict": found["verdict"],
        "confidence": found["confidence"],
        "counted": round(last - truth[1], 2),
        "stood": round(max(later - one for one, later in pairwise(truth.values())), 2),
        **({"starved": starved, "short": _describe_shortage(rack, before, shared)} if starved else {}),
        "lost": rounded,
    }, found


def _describe_shortage(rack: VirtualRack, boot: str, shared: Path) -> dict[str, Any]:
    """What the last sample of a boot says of memory, as the receiver has it, and the last count of waits for the disk:
    the percentage of 10 s in which some program waited, and in which all did.
    """
    found = [one for one in black_box.samples(rack, RECEIVER, f"{black_box.PEERS}/{NODE}.ring") if one["boot"] == boot]
    waits = re.findall(r"^(some|full) avg10=([0-9.]+)", (shared / "waits").read_text(), re.MULTILINE)
    memory = {key: found[-1].get(key) for key in ("memory", "pressure")} if found else {}
    return {**memory, "disk": {key: float(value) for key, value in waits}}


def _time_of(number: int, truth: Mapping[int, float]) -> float:
    """When a number was counted; 0 for none. The kill may come between a witness and the truth of the last one."""
    return truth.get(number, truth[max(truth)]) if number else 0.0


def _seconds_to_last_count(at: float, truth: Mapping[int, float]) -> float | None:
    """The seconds from a time to the last count; None for one before the first count: the witness has none of them."""
    return None if at < truth[1] else truth[max(truth)] - at


def _start_counter(rack: VirtualRack, shared: Path, word: str) -> None:
    """Start the counter, and wait until each stream has it: they begin some time after a boot."""
    (shared / "count.py").write_text(COUNTER)
    (shared / "counted").unlink(missing_ok=True)
    rack.ssh(NODE, "systemctl start sparkrack-netconsole.service")  # its timer may be minutes away
    rack.ssh(NODE, f"systemd-run --quiet --unit=counter --collect python3 -I /lab/count.py {word}")
    wait_for("the remote journal counts", lambda: _last_count(rack, RECEIVER, REMOTE, word) > 0)
    wait_for("netconsole counts", lambda: _last_count(rack, RECEIVER, CONSOLE, word) > 0)
    boot = rack.ssh(NODE, black_box.BOOT).strip()
    ring = f"{black_box.PEERS}/{NODE}.ring"
    wait_for(
        "samples of this boot arrive", lambda: _time_of_newest_sample(rack, RECEIVER, ring, boot) > time.time() - 5
    )


def wait_for(what: str, happened: Callable[[], T]) -> T:
    """Return the first true result."""
    end = time.monotonic() + black_box.WAIT
    while not (found := happened()):
        assert time.monotonic() < end, f"not within {black_box.WAIT} s: {what}"
        time.sleep(1)
    return found


def _last_count(rack: VirtualRack, node: str, command: str, word: str) -> int:
    """The last number that was counted in the output of a command; 0 for none."""
    found = rack.ssh(node, f"{command} | grep -o 'counted {word} [0-9]*' | tail -n 1").split()
    return int(found[-1]) if found else 0


def _time_of_newest_sample(rack: VirtualRack, node: str, ring: str, boot: str) -> float:
    """The time of the newest sample of a boot, by the clock of the node that took it; 0 for none."""
    return max((one["time"] for one in black_box.samples(rack, node, ring) if one["boot"] == boot), default=0.0)


def _leg_down(found: dict[str, Any], died: float) -> float | None:
    """When the switch lost the link, of the autopsy: the time that is nearest to the kill; None where it names none."""
    downs = [one["at"] for one in found["timeline"] if one["source"] == "switch" and one["text"].endswith("link down")]
    times = [datetime.fromisoformat(at).timestamp() for at in downs]
    return min(times, key=lambda at: abs(at - died), default=None)


def _split_counter_lines(text: str) -> list[list[str]]:
    """The whole lines of the counter's file."""
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
