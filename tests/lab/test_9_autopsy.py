"""Ends of real kernels, judged by `sparkrack autopsy`: drills, a shutdown in order, and a node whose process is killed.

The rack declares the black box as far as a virtual node can have it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from lab import namespace as ns
from tests.lab.virtual import VirtualRack

BLACKBOX = (
    "blackbox: {watchdog: false, pstore: false, panic: {softlockup: false, rcu_stalls: false}, boot_evidence: true}\n"
)
NODE, LEG = "spark2", {"cage": "qsfp56-dd-1", "lane": 3}
BOOT = "tr -d - < /proc/sys/kernel/random/boot_id"
WAIT = 600
"""Seconds for a boot: the machine of the tests is slow."""
pytestmark = pytest.mark.soak(sampled=False)
"""Each test waits for a boot or two, and `make test` has no time for that."""


@pytest.fixture(scope="module")
def file(disposable_rack: VirtualRack) -> Iterator[Path]:
    """The rack file with the section blackbox, applied."""
    path = disposable_rack.folder / "blackbox.yaml"
    path.write_text(disposable_rack.paths.rack.read_text() + BLACKBOX)
    done = disposable_rack.inside("sparkrack", "apply", "-y", "--only", "blackbox", rack=path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield path
    path.unlink()


def back(rack: VirtualRack, before: str) -> None:
    """Wait until the node is in another boot and has its evidence."""
    look = f'b=$({BOOT}); [ "$b" != {before.strip()} ] && [ -e /var/lib/sparkrack/blackbox/boots/$b/evidence.json ]'
    until = time.monotonic() + WAIT
    while rack.ssh(NODE, f"{look} && echo yes", check=False).strip() != "yes":
        assert time.monotonic() < until, "the node is not back with its evidence"
        time.sleep(1)


def autopsy(rack: VirtualRack, file: Path) -> dict[str, Any]:
    done = rack.inside("sparkrack", "autopsy", NODE, "--json", rack=file, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"planned": 0, "unknown": 1}.get(found["verdict"], 2), done.stderr
    return found


def test_the_second_run_changes_nothing_and_each_boot_has_its_evidence(rack: VirtualRack, file: Path) -> None:
    plan = rack.inside("sparkrack", "plan", "--only", "blackbox", "--limit", NODE, rack=file, check=False)
    assert plan.returncode == 0, plan.stdout
    rack.verify("--only", "blackbox", "--limit", NODE, rack=file)


def test_a_shutdown_in_order_is_planned(rack: VirtualRack, file: Path) -> None:
    before = rack.ssh(NODE, BOOT)
    rack.ssh(NODE, "systemctl reboot", check=False)
    back(rack, before)
    found = autopsy(rack, file)
    assert (found["verdict"], found["confidence"], found["boot"]) == ("planned", "high", before.strip()), found
    assert "mark of the shutdown" in {sign["source"] for sign in found["signs"]}


def test_a_mark_arrives(rack: VirtualRack, file: Path) -> None:
    done = rack.inside("sparkrack", "drill", NODE, "--level", "mark", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arrived in: journal" in done.stdout


def test_a_reset_is_seen_as_unclean(rack: VirtualRack, file: Path) -> None:
    words = ("drill", NODE, "--level", "reset", "--yes-really", NODE, "--timeout", str(WAIT))
    done = rack.inside("sparkrack", *words, rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NODE}: drill reset passed" in done.stdout


def test_a_freeze_that_the_watchdog_ends(rack: VirtualRack, file: Path) -> None:
    """The watchdog of a virtual node is softdog, which the role does not find in /sys: systemd is told by hand."""
    dropin = "/etc/systemd/system.conf.d/lab-watchdog.conf"
    rack.ssh(
        NODE,
        f"mkdir -p {PurePosixPath(dropin).parent}; printf '[Manager]\\nRuntimeWatchdogSec=10s\\n' > {dropin}; "
        "systemctl daemon-reexec",
    )
    words = ("drill", NODE, "--level", "freeze", "--yes-really", NODE, "--timeout", str(WAIT))
    done = rack.inside("sparkrack", *words, rack=file, check=False)
    rack.ssh(NODE, f"rm {dropin}; systemctl daemon-reexec", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict watchdog: systemd stopped, and the node booted again" in done.stdout


def test_a_node_that_is_killed_is_no_shutdown(rack: VirtualRack, file: Path) -> None:
    """Its process is killed and its cable pulled in the same second. The node itself has no recorder: what another node
    received is put there in its format.
    """
    before = rack.ssh(NODE, BOOT).strip()
    ns.end(ns.matching(rack.paths.namespace, f"umid={rack.paths.namespace}-{NODE}"))
    rack.control({"op": "cable", "do": "pull", **LEG})
    died = time.time()
    entry = json.dumps({"time": died, "boot": before, "memory": None, "pressure": None, "gpu": None, "events": None})
    ring = f"/var/lib/sparkrack/blackbox/peers/{NODE}.ring"
    program = "/usr/local/lib/sparkrack/recorder.py"
    there = rack.ssh("spark1", f"[ -e {program} ] && echo yes", check=False).strip()
    if not there:
        rack.ssh("spark1", f"printf 'import sys\\nprint(open(sys.argv[2]).read())\\n' > {program}")
    rack.ssh("spark1", f"mkdir -p $(dirname {ring}); echo '{entry}' > {ring}")
    try:
        time.sleep(16)  # a sample is fresh for 15 s
        dead = autopsy(rack, file)
        assert (dead["verdict"], dead["alive"], dead["boot"]) == ("power", False, before), dead
    finally:
        rack.control({"op": "cable", "do": "plug", **LEG})
        rack.ssh("spark1", f"rm -r $(dirname {ring})" + ("" if there else f" {program}"))
        rack.lab("up", "--nodes", "3")
    back(rack, before)
    found = autopsy(rack, file)
    assert found["verdict"] in ("power", "unknown"), found
    assert found["boot"] == before
