"""Kills the kernel of a node of the virtual rack while it writes, several times, and measures what each witness kept:

    python -m tests.lab.black_box_kills --kills 10 --docs

A program on the node counts ten times a second, into its journal, its kernel's log and a file of this machine. The file
is the truth: what is in it left the node. docs/blackbox-acceptance.md describes what is measured and how. Needs root.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.lab import black_box
from tests.lab.converged import converged
from tests.lab.virtual import REPOSITORY, VirtualRack

NODES = ("spark1", "spark2", "spark3")
NODE, RECEIVER = "spark3", "spark1"
PAGE, RECORD = REPOSITORY / "docs/blackbox-acceptance.md", REPOSITORY / "docs/bench/black-box-kills.json"
SCHEMA = "sparkrack.black-box-kills/1"
BEGIN, END = "<!-- generated: kills -->\n", "<!-- end -->"
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
COUNTER = """\
import socket, sys, time

def journal():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect("/dev/log")
    return one

log, number, name = journal(), 0, sys.argv[1]
with open("/lab/counted", "w") as truth, open("/dev/kmsg", "w") as kernel:
    while True:
        number += 1
        now = time.time()
        try:
            log.send(f"<13>counter: counted {name} {number}".encode())
        except OSError:  # journald was restarted
            log = journal()
        kernel.write(f"<4>counted {name} {number}")
        kernel.flush()
        truth.write(f"{number} {now:.3f}\\n")
        truth.flush()
        time.sleep(0.1)
"""
OWN = "journalctl _BOOT_ID={} -q -o cat -n 300"
REMOTE = f"journalctl -D /var/log/journal/remote _HOSTNAME={NODE} -q -o cat -n 300"
CONSOLE = f"tail -n 100 /var/lib/sparkrack/blackbox/netconsole/{NODE}.log"
Kill = dict[str, Any]


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="black_box_kills", description="Kill a node, and measure its witnesses.")
    parser.add_argument("--kills", type=int, default=10, help="kills that the record has in the end (%(default)s)")
    parser.add_argument("--again", action="store_true", help="begin a new record")
    parser.add_argument("--record", type=Path, default=RECORD, help="JSON of each kill; further ones are added")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".lab-kills", help="folder of the virtual rack")
    parser.add_argument("--docs", action="store_true", help="renew the table of docs/blackbox-acceptance.md")
    given = parser.parse_args(words)
    found: list[Kill] = [] if given.again or not given.record.exists() else read(given.record)
    if len(found) < given.kills:
        if os.geteuid():
            parser.error("needs root, for the virtual rack")
        rack = VirtualRack(given.folder, NODES)
        try:
            converged(given.folder, NODES)
            with black_box.section(rack) as file:
                while len(found) < given.kills:
                    found.append(kill(rack, file)[0])
                    given.record.write_text(json.dumps({"schema": SCHEMA, "kills": found}, indent=1) + "\n")
                    print(json.dumps(found[-1]), flush=True)
        finally:
            rack.lab("down")
    if given.docs:
        page = PAGE.read_text()
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(page[:begin] + table(found) + page[end:])
    return 0


def read(record: Path) -> list[Kill]:
    """The kills of a record."""
    found = json.loads(record.read_text())
    assert found["schema"] == SCHEMA, f"{record}: not {SCHEMA}"
    kills: list[Kill] = found["kills"]
    return kills


def table(kills: Sequence[Kill]) -> str:
    """The table of the page: seconds lost, median and worst."""
    lines = [
        "",
        f"Seconds lost in {len(kills)} kills; load of the machine {_span([one['load'] for one in kills])}.",
        "",
        "| witness | what it has | median | worst | in kill |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, text in WITNESSES.items():
        lost = [_lost(one, name) for one in kills]
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


def _lost(kill: Kill, name: str) -> float:
    """The seconds that a witness lost in a kill: all that were counted where it has none of them."""
    lost: float | None = kill["lost"][name]
    return _counted_seconds(kill) if lost is None else min(abs(lost), _counted_seconds(kill))


def _counted_seconds(kill: Kill) -> float:
    """The seconds from the first count to the last; the first records do not have them."""
    return float(kill.get("counted", math.inf))


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def kill(rack: VirtualRack, file: Path) -> tuple[Kill, dict[str, Any]]:
    """Kill the node while it counts, look at each witness, and start it again. Returns what was lost, and the autopsy
    of the dead node.
    """
    shared = rack.paths.node(NODE) / "shared"
    before = rack.ssh(NODE, black_box.BOOT).strip()
    word = secrets.token_hex(4)  # so that lines of an earlier kill do not count
    _count(rack, shared, word)
    time.sleep(random.uniform(10, 14))  # noqa: S311 - any phase of what is written every second
    died = black_box.kill(rack, NODE)
    load = os.getloadavg()[0]
    truth = {int(number): float(at) for number, at in _pairs((shared / "counted").read_text())}
    last = truth[max(truth)]
    assert abs(died - last) < 5, f"the counter stood still {died - last:.1f} s before the kill"
    time.sleep(3)  # for what is on its way
    lost: dict[str, float | None] = {
        "remote ring": _since(_newest(rack, RECEIVER, f"{black_box.PEERS}/{NODE}.ring", before), truth),
        "remote journal": _since(_time_of(_counted(rack, RECEIVER, REMOTE, word), truth), truth),
        "netconsole": _since(_time_of(_counted(rack, RECEIVER, CONSOLE, word), truth), truth),
    }
    time.sleep(max(0.0, died + FRESH - time.time()))
    found = black_box.autopsy(rack, file, NODE)
    down = _leg_down(found, died)
    lost["switch"] = None if down is None else down - died
    rack.lab("up", "--nodes", str(len(NODES)))
    black_box.back(rack, NODE, before)
    lost["own ring"] = _since(_newest(rack, NODE, black_box.RING, before), truth)
    lost["own journal"] = _since(_time_of(_counted(rack, NODE, OWN.format(before), word), truth), truth)
    rounded = {name: None if (seconds := lost[name]) is None else round(seconds, 2) for name in WITNESSES}
    return {
        "made": datetime.fromtimestamp(died).astimezone().isoformat(timespec="seconds"),
        "load": round(load, 1),
        "verdict": found["verdict"],
        "confidence": found["confidence"],
        "counted": round(last - truth[1], 2),
        "lost": rounded,
    }, found


def _time_of(number: int, truth: Mapping[int, float]) -> float:
    """When a number was counted; 0 for none. The kill may come between a witness and the truth of the last one."""
    return truth.get(number, truth[max(truth)]) if number else 0.0


def _since(at: float, truth: Mapping[int, float]) -> float | None:
    """The seconds from a time to the last count; None for one before the first count: the witness has none of them."""
    return None if at < truth[1] else truth[max(truth)] - at


def _count(rack: VirtualRack, shared: Path, word: str) -> None:
    """Start the counter, and wait until each stream has it: they begin some time after a boot."""
    (shared / "count.py").write_text(COUNTER)
    (shared / "counted").unlink(missing_ok=True)
    rack.ssh(NODE, "systemctl start sparkrack-netconsole.service")  # its timer may be minutes away
    rack.ssh(NODE, f"systemd-run --quiet --unit=counter --collect python3 -I /lab/count.py {word}")
    _until("the remote journal counts", lambda: _counted(rack, RECEIVER, REMOTE, word) > 0)
    _until("netconsole counts", lambda: _counted(rack, RECEIVER, CONSOLE, word) > 0)
    boot = rack.ssh(NODE, black_box.BOOT).strip()
    ring = f"{black_box.PEERS}/{NODE}.ring"
    _until("samples of this boot arrive", lambda: _newest(rack, RECEIVER, ring, boot) > time.time() - 5)


def _until(what: str, true: Callable[[], bool]) -> None:
    until = time.monotonic() + black_box.WAIT
    while not true():
        assert time.monotonic() < until, f"not within {black_box.WAIT} s: {what}"
        time.sleep(1)


def _counted(rack: VirtualRack, node: str, command: str, word: str) -> int:
    """The last number that was counted in the output of a command; 0 for none."""
    found = rack.ssh(node, f"{command} | grep -o 'counted {word} [0-9]*' | tail -n 1").split()
    return int(found[-1]) if found else 0


def _newest(rack: VirtualRack, node: str, ring: str, boot: str) -> float:
    """The time of the newest sample of a boot, by the clock of the node that took it; 0 for none."""
    return max((one["time"] for one in black_box.samples(rack, node, ring) if one["boot"] == boot), default=0.0)


def _leg_down(found: dict[str, Any], died: float) -> float | None:
    """When the switch lost the link, of the autopsy: the time that is nearest to the kill; None where it names none."""
    downs = [one["at"] for one in found["timeline"] if one["source"] == "switch" and one["text"].endswith("link down")]
    times = [datetime.fromisoformat(at).timestamp() for at in downs]
    return min(times, key=lambda at: abs(at - died), default=None)


def _pairs(text: str) -> list[list[str]]:
    """The whole lines of the counter's file."""
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
