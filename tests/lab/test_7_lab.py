"""The lab itself: safe to run again, one machine back to factory, nothing left behind after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from lab import namespace as ns
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=6)

PING = "ping -qc1 -W5 -M do -s 8972 192.168.100.2 2>&1 | grep ' 0% packet loss' || true"
"""A frame of full size to spark2 over the fabric: nothing is printed when it is not answered."""


def test_up_again_changes_nothing(rack: VirtualRack) -> None:
    def running() -> list[str]:
        boots = [rack.ssh(node, "cat /proc/sys/kernel/random/boot_id") for node in rack.nodes]
        switch = ns.matching(rack.paths.namespace, str(rack.paths.switch("crs812") / "config.json"))
        return [*boots, str(switch), rack.paths.rack.read_text()]

    before = running()
    rack.lab("up", "--nodes", "3")
    assert running() == before
    assert rack.lab("status").stdout.count("running") == 4


def test_another_rack_is_refused_while_one_runs(rack: VirtualRack) -> None:
    done = rack.lab("up", "--nodes", "2", check=False)
    assert done.returncode == 1
    assert "a lab of another rack is running here" in done.stderr


def test_the_switch_goes_back_to_factory_and_takes_the_fabric_along(rack: VirtualRack) -> None:
    assert rack.ssh("spark1", PING)
    rack.lab("reset", "crs812")
    assert rack.ssh("spark1", PING, check=False) == ""
    rack.deploy("-y", "--limit", "switches", roles=("switch",))
    assert rack.ssh("spark1", PING)


def test_what_was_killed_comes_back_with_up(rack: VirtualRack) -> None:
    ns.end(ns.processes(rack.paths.namespace))
    assert rack.lab("status", check=False).returncode == 1
    rack.lab("up", "--nodes", "3")
    assert rack.lab("status").stdout.count("running") == 4
    assert rack.ssh("spark1", PING)


def test_a_watchdog_that_is_not_fed_resets_the_node_and_it_comes_back(rack: VirtualRack) -> None:
    """The reset of softdog: no shutdown, and the interfaces are there again afterwards."""
    before = rack.ssh("spark2", "cat /proc/sys/kernel/random/boot_id")
    # WDIOC_SETTIMEOUT, then nothing: the file is kept open and never written to again.
    hold = (
        "import array, fcntl, time; dog = open('/dev/watchdog', 'wb', 0); "
        "fcntl.ioctl(dog, 0xC0045706, array.array('i', [3])); time.sleep(600)"
    )
    rack.ssh("spark2", f'systemd-run -q python3 -c "{hold}"')
    until = time.monotonic() + 300
    while (after := rack.ssh("spark2", "cat /proc/sys/kernel/random/boot_id", check=False)) in ("", before):
        assert time.monotonic() < until, "it was not reset, or did not come back"
        time.sleep(0.5)
    assert after != before
    assert rack.ssh("spark2", PING.replace("100.2", "100.1"))


def test_the_kernels_messages_go_out_over_the_management_port(rack: VirtualRack) -> None:
    """netconsole, set up while the kernel runs: what the node says reaches another machine.

    A node boots with `quiet`, so only errors and worse go to any console.
    """
    target = "/sys/kernel/config/netconsole/lab"
    text = "a marker of the lab"
    listen = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.1', 6665)); "
        f"s.settimeout(120); print('ready', flush=True)\nwhile b'{text}' not in (said := s.recv(4096)): pass\n"
        "print(said.decode())"
    )
    listener = subprocess.Popen(
        ["sparkrack", "lab", "run", "--", sys.executable, "-c", listen],
        env=rack.environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listener.stdout
        assert listener.stdout.readline() == "ready\n"
        rack.ssh(
            "spark1",
            f"mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config; mkdir {target}; "
            f"cd {target}; ping -qc1 10.77.0.1 >/dev/null; echo enP7s7 > dev_name; echo 10.77.0.11 > local_ip; "
            "echo 10.77.0.1 > remote_ip; echo 6665 > remote_port; "
            "ip neighbour show 10.77.0.1 dev enP7s7 | awk '{print $3}' > remote_mac; "
            f"echo 1 > enabled; echo '<2>{text}' > /dev/kmsg",
        )
        assert text in listener.communicate(timeout=150)[0]
    finally:
        listener.kill()
        listener.wait()
        rack.ssh("spark1", f"echo 0 > {target}/enabled; rmdir {target}", check=False)


@pytest.mark.soak
def test_a_snapshot_brings_the_rack_back_as_it_was(rack: VirtualRack) -> None:
    """Disks, switch and images, in a folder of its own; made again under the same name, and removed.

    Every run restores the rack of each worker, and test_2_drift.py finds it as declared.
    """
    name = f"test-of-snapshots-{os.getpid()}"
    other = VirtualRack(REPOSITORY / ".lab-test-restored", rack.nodes)
    writes, known = rack.writes(), rack.paths.known_hosts.read_text()
    etc = {node: rack.ssh(node, "sha256sum /etc/shadow /etc/netplan/* /etc/hosts") for node in rack.nodes}
    unknown = other.lab("restore", name, check=False)
    assert unknown.returncode == 1
    assert f"there is no snapshot {name}" in unknown.stderr
    rack.ssh("spark2", "echo kept > /root/kept")
    try:
        rack.lab("snapshot", name)
        rack.ssh("spark2", "rm /root/kept")
        assert rack.writes() == writes
        other.lab("restore", name)
        assert other.ssh("spark2", "cat /root/kept") == "kept\n"
        assert {node: other.ssh(node, "sha256sum /etc/shadow /etc/netplan/* /etc/hosts") for node in other.nodes} == etc
        assert other.paths.known_hosts.read_text() == known
        drift = other.command("drift")
        assert drift.returncode == 0, drift.stdout + drift.stderr
        other.verify("--only", "fabric", "--only", "images", "--only", "switch")
    finally:
        other.lab("down")
        rack.lab("snapshot", "--delete", name)


def test_down_leaves_nothing_even_after_a_crash(disposable_rack: VirtualRack) -> None:
    rack = disposable_rack
    namespace, pids = rack.paths.namespace, ns.processes(rack.paths.namespace)
    assert pids
    os.kill(pids[0], signal.SIGKILL)
    rack.paths.plan.unlink()
    rack.lab("down")
    assert not ns.exists(namespace)
    assert not [pid for pid in pids if ns.alive(pid)]
    assert not rack.folder.exists()
    rack.lab("down")
    done = rack.lab("status", check=False)
    assert done.returncode == 1
    assert "there is no lab in" in done.stderr
