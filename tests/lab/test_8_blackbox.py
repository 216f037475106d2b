"""The black box on real kernels and a real systemd: every part is declared, and a node is killed while it writes.

systemd-journal-remote is in the image of the nodes. A virtual node has no watchdog and no pstore.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import black_box
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=1)

NODE, RECEIVER, LEG = "spark3", "spark1", "qsfp56-dd-1-5"
RING = f"/var/lib/sparkrack/blackbox/peers/{NODE}.ring"
COUNTER = (
    "systemd-run --unit=counter --collect sh -c 'i=0; while :; do i=$((i + 1)); echo counted $i; "
    'echo "<4>counted $i" > /dev/kmsg; sleep 0.2; done\''
)
LOST = 30
"""Seconds before the kill in which each witness must have heard of the node: the machine of the tests is slow."""


@pytest.fixture(scope="module")
def file(disposable_rack: VirtualRack) -> Iterator[Path]:
    """The rack file with the section blackbox, applied."""
    with black_box.section(disposable_rack) as path:
        yield path


def test_every_stream_is_proven_and_the_second_run_changes_nothing(rack: VirtualRack, file: Path) -> None:
    rack.verify("--only", "blackbox", rack=file)
    done = rack.inside("sparkrack", "drift", "--only", "blackbox", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (file.with_name("blackbox-ca.key").stat().st_mode & 0o777) == 0o600


def test_nothing_listens_outside_the_management_network(rack: VirtualRack, file: Path) -> None:
    listening = rack.ssh(RECEIVER, "ss -Hltnu")
    for port in (6666, 6667, 19532):
        found = [line.split()[4] for line in listening.splitlines() if line.split()[4].endswith(f":{port}")]
        assert found, f"nothing listens at {port}"
        assert all(place.startswith("10.77.0.") for place in found), found


@pytest.mark.soak
@pytest.mark.parametrize(
    "by_hand",
    [
        "systemctl disable --now sparkrack-recorder.service",
        "rm /usr/local/lib/sparkrack/recorder.py",
        "systemctl stop sparkrack-netconsole.timer; /usr/local/lib/sparkrack/netconsole-target --off",
        "rm /etc/sparkrack/blackbox/node.pem",
        "systemctl stop systemd-journal-upload.service",
        "rm /etc/systemd/journal-upload.conf.d/zz-sparkrack.conf",
        "systemctl disable sparkrack-boot-evidence.service",
    ],
)
def test_what_is_broken_by_hand_is_found_and_repaired(rack: VirtualRack, file: Path, by_hand: str) -> None:
    rack.ssh(NODE, by_hand)
    assert rack.inside("sparkrack", "drift", "--only", "blackbox", rack=file, check=False).returncode == 2
    done = rack.inside("sparkrack", "apply", "-y", "--only", "blackbox", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rack.verify("--only", "blackbox", rack=file)


def test_a_node_that_is_killed_leaves_its_last_seconds_on_another_node(rack: VirtualRack, file: Path) -> None:
    rack.ssh(NODE, COUNTER)
    time.sleep(5)  # so that the counter is older than the delays of all streams
    died = black_box.kill(rack, NODE)
    sample = json.loads(rack.ssh(RECEIVER, f"/usr/local/lib/sparkrack/recorder.py dump --last 1 {RING}"))
    assert died - LOST < sample["time"] < died + 1
    until = time.monotonic() + 60
    while (found := black_box.autopsy(rack, file, NODE))["verdict"] == "unknown":
        assert time.monotonic() < until, found  # its last sample is fresh for 15 s: it may be alive
    assert (found["verdict"], found["alive"]) == ("power", False), found
    assert f"{LEG} link down" in {entry["text"] for entry in found["timeline"] if entry["source"] == "switch"}
    counted = {entry["source"] for entry in found["timeline"] if "counted" in entry["text"]}
    assert {"remote journal", "netconsole"} <= counted
    read = {source["name"] for source in found["sources"] if source["state"] == "read"}
    assert {f"samples at {RECEIVER}", f"remote journal at {RECEIVER}", f"netconsole at {RECEIVER}"} <= read
