"""Ends of real kernels, judged by `sparkrack autopsy`: drills, a shutdown in order, a node whose process is killed or
stopped, and a server of the black box that dies. docs/evidence/blackbox-acceptance.md names what each shows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest

from lab.namespace import alive
from tests.lab import black_box, black_box_kills
from tests.lab.black_box import BOOT, PEERS, RING, WAIT
from tests.lab.virtual import VirtualRack

SERVER, NEXT, NODE, LEG = "spark1", "spark2", "spark3", "qsfp56-dd-1-5"
"""The node that receives what the others send, the one that receives what it sends, and the one that ends."""
LOST = 30
"""Seconds before a kill in which each witness must have heard of the node: the machine of the tests is slow."""
pytestmark = pytest.mark.soak
"""Each test waits for a boot or two, and `make test` has no time for that."""


@pytest.fixture(scope="module")
def file(disposable_rack: VirtualRack) -> Iterator[Path]:
    """The rack file with the section blackbox, applied."""
    with black_box.section(disposable_rack) as path:
        yield path


def streams(rack: VirtualRack, file: Path) -> None:
    """Wait until each stream is proven: the proof sends a line through each. They begin some time after a boot."""
    until = time.monotonic() + WAIT
    while (done := rack.verify("--only", "blackbox", rack=file, check=False)).returncode:
        assert time.monotonic() < until, done.stdout


def drill(rack: VirtualRack, file: Path, level: str) -> str:
    """Its output; it has to pass."""
    words = ("drill", NODE, "--level", level, "--yes-really", NODE, "--timeout", str(WAIT))
    done = rack.inside("sparkrack", *words, rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NODE}: drill {level} passed" in done.stdout
    return done.stdout


def test_the_second_run_changes_nothing_and_each_boot_has_its_evidence(rack: VirtualRack, file: Path) -> None:
    plan = rack.inside("sparkrack", "plan", "--only", "blackbox", rack=file, check=False)
    assert plan.returncode == 0, plan.stdout
    streams(rack, file)


def test_a_shutdown_in_order_is_planned(rack: VirtualRack, file: Path) -> None:
    before = rack.ssh(NODE, BOOT).strip()
    rack.ssh(NODE, "systemctl reboot", check=False)
    black_box.back(rack, NODE, before)
    found = black_box.autopsy(rack, file, NODE)
    assert (found["verdict"], found["confidence"], found["boot"]) == ("planned", "high", before), found
    assert "mark of the shutdown" in {sign["source"] for sign in found["signs"]}


def test_a_mark_arrives_at_every_place(rack: VirtualRack, file: Path) -> None:
    streams(rack, file)
    printed = drill(rack, file, "mark")
    assert f"arrived in: journal, netconsole at {SERVER}, remote journal at {SERVER}" in printed


def test_a_reset_is_seen_as_unclean(rack: VirtualRack, file: Path) -> None:
    drill(rack, file, "reset")


def test_a_freeze_that_the_watchdog_ends(rack: VirtualRack, file: Path) -> None:
    """The watchdog of a virtual node is softdog, which the role does not find in /sys: systemd is reported by hand."""
    dropin = "/etc/systemd/system.conf.d/lab-watchdog.conf"
    rack.ssh(
        NODE,
        f"mkdir -p {PurePosixPath(dropin).parent}; printf '[Manager]\\nRuntimeWatchdogSec=10s\\n' > {dropin}; "
        "systemctl daemon-reexec",
    )
    try:
        printed = drill(rack, file, "freeze")
    finally:
        rack.ssh(NODE, f"rm {dropin}; systemctl daemon-reexec", check=False)
    assert "verdict watchdog: systemd stopped, and the node booted again" in printed


def test_a_panic_whose_words_the_server_has(rack: VirtualRack, file: Path) -> None:
    """Its netconsole sends them, and the node restarts by itself: lab/image/kernel.patch has what that takes."""
    streams(rack, file)
    printed = drill(rack, file, "panic")
    assert "verdict panic: the kernel panicked: sysrq triggered crash" in printed
    found = black_box.autopsy(rack, file, NODE)
    (source,) = {sign["source"] for sign in found["signs"]}
    assert (found["verdict"], source) == ("panic", "netconsole")
    words = [entry["text"] for entry in found["timeline"] if entry["source"] == "netconsole"]
    assert any("Kernel panic - not syncing: sysrq triggered crash" in text for text in words), words


def test_a_node_that_is_killed_while_it_writes(rack: VirtualRack, file: Path) -> None:
    """It is judged while it is dead, and once more when it is back: power, or a reset without a record."""
    kill, dead = black_box_kills.kill(rack, file)
    assert {name: lost for name, lost in kill["lost"].items() if lost is None or not -2 < lost < LOST} == {}
    for found, is_alive in ((dead, False), (black_box.autopsy(rack, file, NODE), True)):
        assert (found["verdict"], found["alive"], found["boot"]) == ("power", is_alive, dead["boot"]), found
        assert re.search(r"the link went down \d s (after|before) the last sign of life \(", found["reason"]), found
        assert found["reason"].endswith("nothing was recorded: power, or a reset without a record")
        down = [one["at"] for one in found["timeline"] if one["text"] == f"{LEG} link down"]
        died = datetime.fromisoformat(kill["made"]).timestamp()
        assert [at for at in down if abs(datetime.fromisoformat(at).timestamp() - died) < 5], found["timeline"]


def test_a_node_that_stands_still_keeps_its_link(rack: VirtualRack, file: Path) -> None:
    """Its kernel is stopped with its power on: no sample, a link that is up, no frame, and no answer on the fabric."""
    streams(rack, file)
    found = black_box.pids(rack, NODE)
    rack.run("kill", "-STOP", *map(str, found))
    rack.control({"op": "quiet"})  # else the emulated switch counts frames of each leg that has a link
    try:
        time.sleep(75)  # a standstill is one after 60 s
        still = black_box.autopsy(rack, file, NODE)
    finally:
        rack.control({"op": "quiet", "quiet": False})
        rack.run("kill", "-CONT", *map(str, [pid for pid in found if alive(pid)]))
    assert (still["verdict"], still["alive"]) == ("freeze", False), still
    assert f"{LEG} has a link" in still["reason"]
    assert f"the switch receives no frame from {LEG}" in still["reason"]
    assert f"{SERVER} gets no answer of" in still["reason"]


def test_a_server_that_dies(rack: VirtualRack, file: Path) -> None:
    """The node after it has its last lines. What the others wrote meanwhile arrives later, but for netconsole."""
    streams(rack, file)
    before = rack.ssh(SERVER, BOOT).strip()
    rack.ssh(SERVER, "logger the last words; echo '<4>the last words' > /dev/kmsg")
    time.sleep(LOST / 2)
    died = black_box.kill(rack, SERVER)
    rack.ssh(NODE, "for i in $(seq 20); do logger while it is away, $i; sleep 0.5; done")
    time.sleep(black_box_kills.FRESH)
    found = black_box.autopsy(rack, file, SERVER)
    assert (found["verdict"], found["alive"], found["boot"]) == ("power", False, before), found
    words = {one["source"] for one in found["timeline"] if "the last words" in one["text"]}
    assert words == {"remote journal", "netconsole"}
    read = {one["name"] for one in found["sources"] if one["state"] == "read"}
    assert {f"{what} at {NEXT}" for what in ("samples", "remote journal", "netconsole")} <= read
    rack.lab("up", "--nodes", str(len(rack.nodes)))
    black_box.back(rack, SERVER, before)
    streams(rack, file)
    lines = rack.ssh(SERVER, f"journalctl -D /var/log/journal/remote _HOSTNAME={NODE} -o cat -n 2000 -q")
    assert {int(number) for number in re.findall(r"while it is away, (\d+)", lines)} == set(range(1, 21))
    now = time.time()
    boot = rack.ssh(NODE, BOOT).strip()
    received, own = (
        {one["sequence"] for one in black_box.samples(rack, *place) if one["boot"] == boot and died < one["time"] < now}
        for place in ((SERVER, f"{PEERS}/{NODE}.ring"), (NODE, RING))
    )
    assert own
    assert own <= received, f"{len(own - received)} of {len(own)} samples are missing"


def test_a_node_with_64m_of_memory_left_still_writes_samples(rack: VirtualRack, file: Path) -> None:
    """All memory but that is set aside for the kernel (vm.min_free_kbytes). A program that wants more is ended."""
    streams(rack, file)
    script = f"""
    kept=$(cat /proc/sys/vm/min_free_kbytes)
    sync; echo 3 > /proc/sys/vm/drop_caches
    while read -r name value _; do [ $name = MemFree: ] && free=$value; done < /proc/meminfo
    echo $((free - {black_box_kills.LEFT // 1024})) > /proc/sys/vm/min_free_kbytes
    begin=$(date +%s)
    echo 1000 > /proc/self/oom_score_adj
    timeout 60 python3 -Ic "import time; held = b'x' * (512 << 20); time.sleep(60)"
    echo ended $?
    sleep 20
    echo $kept > /proc/sys/vm/min_free_kbytes
    echo between $begin $(date +%s)
    """
    printed = rack.ssh(NODE, script)
    assert "ended 137" in printed, printed
    match = re.search(r"between (\d+) (\d+)", printed)
    assert match, printed
    begin, end = map(int, match.groups())
    time.sleep(LOST / 2)
    for node, ring in ((NODE, RING), (SERVER, f"{PEERS}/{NODE}.ring")):
        taken = [one for one in black_box.samples(rack, node, ring) if begin <= one["time"] <= end]
        scarce = [one["time"] for one in taken if one["memory"] and one["memory"]["available"] <= black_box_kills.LEFT]
        assert len(scarce) > 20, f"{ring} of {node}: {len(scarce)} of {len(taken)} samples of {end - begin} s"
        assert max(later - one for one, later in pairwise(scarce)) < LOST / 2
