"""The role time against a real time server: chronyd on the operator's address, which every node reaches."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.model import load
from lab.image.build import recipe_hash
from lab.layout import Layout
from lab.paths import cache
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=3)

ROLES = ("time",)
DROPIN = "/etc/systemd/timesyncd.conf.d/zz-sparkrack.conf"
SYNCHRONIZED = (
    "for _ in $(seq 120); do timedatectl show --property=NTPSynchronized --value | grep -qx yes && exit 0; sleep 0.5; "
    "done; timedatectl timesync-status; journalctl --no-pager -n 5 -u systemd-timesyncd; exit 1"
)
CONFIGURATION = """\
local stratum 8
allow
cmdport 0
bindcmdaddress /
pidfile {folder}/pid
"""


@pytest.fixture(scope="module")
def server(rack: VirtualRack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A time server in the lab's network. It leaves this machine's clock alone (-x)."""
    folder = tmp_path_factory.mktemp("chrony")
    (folder / "chrony.conf").write_text(CONFIGURATION.format(folder=folder))
    program = cache() / "lab" / f"image-{recipe_hash()}" / "tools/usr/sbin/chronyd"
    enter = ("ip", "netns", "exec", rack.paths.namespace)
    process = subprocess.Popen(
        [*enter, str(program), "-d", "-x", "-u", "root", "-f", str(folder / "chrony.conf")],
        stdin=subprocess.DEVNULL,
        stdout=(folder / "output").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        end = time.monotonic() + 30
        while not (folder / "pid").exists():
            assert process.poll() is None, (folder / "output").read_text()
            assert time.monotonic() < end, "the time server did not start"
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def timed(rack: VirtualRack, server: subprocess.Popen[bytes]) -> Iterator[Path]:
    """The lab's rack file with time servers, beside it; in the end the nodes have no trace of the role."""
    file = rack.paths.rack.with_name("rack-time.yaml")
    operator = Layout(load(rack.paths.rack)).operator.ip
    file.write_text(f"{rack.paths.rack.read_text()}\ntime: {{ntp: [{operator}], time_zone: Europe/Berlin}}\n")
    try:
        yield file
    finally:
        file.unlink()
        for node in rack.nodes:
            rack.ssh(
                node,
                f"systemctl disable --now systemd-timesyncd; rm -rf {Path(DROPIN).parent}; "
                "timedatectl set-timezone Etc/UTC; systemctl reset-failed",
            )


def test_the_clock_follows_the_declared_server(rack: VirtualRack, timed: Path) -> None:
    rack.ssh("spark2", 'date -s "@$(($(date +%s) + 600))"')
    rack.deploy("-y", rack=timed, roles=ROLES)
    for node in rack.nodes:
        rack.ssh(node, SYNCHRONIZED)
    assert abs(float(rack.ssh("spark2", "date +%s.%N")) - time.time()) < 60, "10 minutes ahead before"
    assert "CE" in rack.ssh("spark1", "date +%Z")
    # The first offset was 10 minutes, and the daemon measures the next one after half a minute unless it is restarted.
    measured = "for _ in $(seq 120); do timedatectl timesync-status | grep -q Offset: && exit; sleep 0.5; done; exit 1"
    rack.ssh("spark2", f"systemctl restart systemd-timesyncd; {measured}")
    rack.verify("--only", "time", rack=timed)


def test_what_is_changed_by_hand_is_found_and_fixed(rack: VirtualRack, timed: Path) -> None:
    """Its second run, in which nothing differs, shows that the first one fixed all."""
    rack.ssh("spark1", "systemctl disable --now systemd-timesyncd")
    rack.ssh("spark2", f"echo NTP=10.77.0.99 >> {DROPIN}")
    rack.ssh("spark3", "timedatectl set-timezone Asia/Tokyo")
    found = rack.command("drift", "--only", "time", rack=timed)
    assert found.returncode == 2, found.stdout + found.stderr
    for line in ("systemd-timesyncd", DROPIN, "Asia/Tokyo"):
        assert line in found.stdout, found.stdout
    rack.deploy("-y", rack=timed, roles=ROLES)
    before = rack.etc()
    again = rack.deploy("-y", rack=timed, roles=ROLES)
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", again.stderr + again.stdout, re.MULTILINE)
    assert rack.etc() == before


def test_a_server_that_does_not_answer_is_not_a_synchronization(
    rack: VirtualRack, timed: Path, server: subprocess.Popen[bytes]
) -> None:
    """The last test of the file: it ends the server."""
    server.terminate()
    server.wait()
    for node in rack.nodes:
        rack.ssh(node, "rm -f /run/systemd/timesync/synchronized; systemctl restart systemd-timesyncd")
    seen = rack.verify("--only", "time", rack=timed, check=False)
    assert seen.returncode == 2, seen.stdout
    assert "has measured no offset: no server has answered yet" in seen.stdout
