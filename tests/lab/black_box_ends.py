"""Ends boots of a node of the virtual rack on purpose, by plan and not, and compares each verdict with the truth:

    python -m tests.lab.black_box_ends --docs

docs/evidence/blackbox-acceptance.md describes what is done. Needs root.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.namespace import alive
from tests.lab import black_box
from tests.lab.black_box_kills import FRESH, NODE, NODES, armed_rack, make_parser, read, wait_for, write_table
from tests.lab.virtual import REPOSITORY, VirtualRack

RECORD, SCHEMA = REPOSITORY / "docs/bench/black-box-ends.json", "sparkrack.black-box-ends/1"
SPOOF = """\
for words in 'Kernel panic - not syncing: spoofed' 'reboot: Restarting system'; do echo "<0>$words" > /dev/kmsg; done
logger -t systemd 'Reached target reboot.target - System Reboot.'
logger -t systemd-logind 'System is rebooting.'
sleep 3
"""
"""A program that writes what a panic and a shutdown write; the node is not shut down."""
EndRecord = dict[str, Any]


@dataclass(frozen=True)
class End:
    """One way to end a boot. `truth`: the verdicts that are right. `times`: how often it is done. `run`: does it, and
    returns the ID of the boot that ended; `before` is the one that runs.
    """

    truth: tuple[str, ...]
    times: int
    run: Callable[[VirtualRack, Path, str], str]


def by_command(command: str) -> Callable[[VirtualRack, Path, str], str]:
    """A restart by a command on the node."""

    def run(rack: VirtualRack, _: Path, before: str) -> str:
        rack.ssh(NODE, command, check=False)
        black_box.back(rack, NODE, before)
        return before

    return run


def by_sparkrack(rack: VirtualRack, file: Path, before: str) -> str:
    """A restart by `sparkrack reboot`, which proves the node as well."""
    done = rack.inside("sparkrack", "reboot", "-y", "--limit", NODE, rack=file, check=False)
    print(done.stdout[-400:], done.stderr[-400:], flush=True)
    black_box.back(rack, NODE, before)
    return before


def off_and_on(rack: VirtualRack, _: Path, before: str) -> str:
    """A shutdown, and the node is switched on later."""
    found = black_box.pids(rack, NODE)
    rack.ssh(NODE, "systemctl poweroff", check=False)
    wait_for(f"{NODE} is off", lambda: not any(map(alive, found)))
    rack.lab("up", "--nodes", str(len(NODES)))
    black_box.back(rack, NODE, before)
    return before


def killed_and_on(rack: VirtualRack, before: str) -> str:
    """The kernel is killed, and the node is switched on after its last sample is old."""
    black_box.kill(rack, NODE)
    time.sleep(FRESH)
    rack.lab("up", "--nodes", str(len(NODES)))
    black_box.back(rack, NODE, before)
    return before


def early_crash(rack: VirtualRack, _: Path, before: str) -> str:
    """A planned restart, and a kill as soon as the next boot accepts a login."""
    rack.ssh(NODE, "systemctl reboot", check=False)
    look = f'b=$({black_box.BOOT}); [ "$b" = {before} ] || echo $b'
    return killed_and_on(rack, wait_for("the next boot", lambda: rack.ssh(NODE, look, check=False).strip()))


def soft_reboot(rack: VirtualRack, *_: object) -> None:
    """Restart all of user space. The kernel, and with it the boot, goes on."""
    look = "systemctl show --property=MainPID --value systemd-journald.service; systemctl is-system-running"
    first = rack.ssh(NODE, look, check=False).split()[0]
    rack.ssh(NODE, "systemctl soft-reboot", check=False)

    def is_back() -> bool:
        found = rack.ssh(NODE, look, check=False).split()
        return len(found) == 2 and found[0] not in ("0", first) and found[1] in ("running", "degraded")

    wait_for("user space is back", is_back)


def soft_reboot_alone(rack: VirtualRack, file: Path, _: str) -> str:
    """No boot has ended: the verdict stays that of the boot before."""
    found = black_box.autopsy(rack, file, NODE)
    soft_reboot(rack)
    return str(found["boot"])


def soft_reboot_and_kill(rack: VirtualRack, _: Path, before: str) -> str:
    """The node loses its power some seconds after all of its services were stopped in order and are back."""
    soft_reboot(rack)
    return killed_and_on(rack, before)


def spoofed(rack: VirtualRack, _: Path, before: str) -> str:
    """A program writes the words of a panic and of a shutdown; then the node loses its power."""
    rack.ssh(NODE, SPOOF)
    return killed_and_on(rack, before)


POWER = ("power", "unknown")
"""The kernel was killed: power, or unknown where sources contradict one another; never planned, never a panic."""
ENDS: Mapping[str, End] = {
    "`systemctl reboot`": End(("planned",), 3, by_command("systemctl reboot")),
    "`shutdown -r now`": End(("planned",), 2, by_command("shutdown -r now")),
    "`reboot`": End(("planned",), 1, by_command("reboot")),
    "`sparkrack reboot`": End(("planned",), 2, by_sparkrack),
    "`systemctl poweroff`, switched on later": End(("planned",), 2, off_and_on),
    "`systemctl soft-reboot`: no boot ends": End(("planned",), 1, soft_reboot_alone),
    "`systemctl soft-reboot`, then a kill": End(POWER, 1, soft_reboot_and_kill),
    "`systemctl reboot`, and a kill early in the next boot": End(POWER, 2, early_crash),
    "words of a panic and of a shutdown by a program, then a kill": End(POWER, 2, spoofed),
}
"""In this order: the soft reboot alone comes after a planned end, whose verdict has to stay."""


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    parser = make_parser("black_box_ends", "End boots, and judge each.", RECORD)
    given = parser.parse_args(words)
    found: list[EndRecord] = [] if given.again or not given.record.exists() else read(given.record, SCHEMA, "ends")
    if any(end.times > sum(one["end"] == name for one in found) for name, end in ENDS.items()):
        with armed_rack(parser, given.folder) as (rack, file):
            fill(rack, file, found, given.record)
    if given.docs:
        write_table("ends", table(found))
    return 0


def fill(rack: VirtualRack, file: Path, found: list[EndRecord], record: Path) -> None:
    """Do the ends that a record lacks, and add each."""
    for name, end in ENDS.items():
        for _ in range(end.times - sum(one["end"] == name for one in found)):
            found.append(judged(rack, file, name))
            record.write_text(json.dumps({"schema": SCHEMA, "ends": found}, indent=1) + "\n")
            print(json.dumps(found[-1]), flush=True)


def judged(rack: VirtualRack, file: Path, name: str) -> EndRecord:
    """End the boot of the node in one way, and judge that when it is back."""
    before = rack.ssh(NODE, black_box.BOOT).strip()
    ended = ENDS[name].run(rack, file, before)
    report = black_box.autopsy(rack, file, NODE)
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "end": name,
        "load": round(os.getloadavg()[0], 1),
        "right_boot": report["boot"] == ended,
        **{key: report[key] for key in ("verdict", "confidence", "reason")},
        "against": [f"{sign['source']}: {sign['text']}" for sign in report["against"]],
    }


def table(ends: Sequence[EndRecord]) -> str:
    """The table of the page: each way to end a boot, the verdicts, and how many of them are right."""
    right, loads = sum(map(is_right, ends)), [one["load"] for one in ends]
    lines = [
        "",
        f"{right} of {len(ends)} verdicts are right; load of the machine {min(loads):.1f} to {max(loads):.1f}.",
        "",
        "| end | verdicts that are right | times | verdicts | right |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, end in ENDS.items():
        mine = [one for one in ends if one["end"] == name]
        said = [f"`{one['verdict']}`" + (f", {one['confidence']}" if one["confidence"] else "") for one in mine]
        verdicts = "; ".join(f"{said.count(one)} times {one}" for one in dict.fromkeys(said))
        truth = " or ".join(f"`{one}`" for one in end.truth)
        lines.append(f"| {name} | {truth} | {len(mine)} | {verdicts} | {sum(map(is_right, mine))} |")
    return "\n".join([*lines, "", ""])


def is_right(one: EndRecord) -> bool:
    """Whether a verdict is one that is right, and of the boot that ended."""
    return one["right_boot"] and one["verdict"] in ENDS[one["end"]].truth


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
