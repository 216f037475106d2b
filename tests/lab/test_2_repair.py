"""Broken by hand, seen by verify, repaired by a run: each check is shown to be able to fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.lab.conftest import NODES
from tests.lab.virtual import VirtualRack

BROKEN = {
    "swap is on again": (
        "systemctl unmask -q swap.target swap.img.swap; swapon /swap.img",
        "spark2: swap is on, ",
    ),
    "fstab brings swap back": (
        "echo '/swap.img none swap sw 0 0' >> /etc/fstab",
        "spark2: fstab swaps to /swap.img at the next boot",
    ),
    "a swap unit can start": (
        "rm /etc/systemd/system/swap.target; systemctl daemon-reload",
        "swap.target can start swap again",
    ),
    "swap on compressed memory": (
        "modprobe zram; echo 64M > /sys/block/zram0/disksize; mkswap -q /dev/zram0; swapon /dev/zram0",
        "spark2: a zram device is set up",
    ),
    "another program allows overcommitment": (
        "sysctl -qw vm.overcommit_memory=1",
        "spark2: vm.overcommit_memory is 1, wanted 0",
    ),
    "the drop-in was edited": (
        "sed -i s/1572864/65536/ /etc/sysctl.d/zz-sparkrack-memory.conf",
        "spark2: vm.min_free_kbytes will be 65536 after a boot, wanted 1572864",
    ),
    "an address was changed": (
        "ip address del 192.168.100.2/24 dev enp1s0f1np1; ip address add 192.168.100.99/24 dev enp1s0f1np1",
        "spark2/enp1s0f1np1: has 192.168.100.99/24, wanted 192.168.100.2/24",
    ),
    "an mtu was changed": (
        "ip link set enP2p1s0f1np1 mtu 1500",
        "spark2/enP2p1s0f1np1: mtu 1500, wanted 9000",
    ),
    "an interface is down": (
        "ip link set enp1s0f1np1 down",
        "; is down",
    ),
    "the netplan file can be read by all": (
        "chmod 644 /etc/netplan/60-sparkrack-fabric.yaml",
        "spark2: /etc/netplan/60-sparkrack-fabric.yaml is 644 root root, wanted 600 root root",
    ),
}


def test_what_was_broken_on_a_node_is_seen_and_repaired(rack: VirtualRack) -> None:
    """All at once: each has its own line, and one run mends them all."""
    for script, _ in BROKEN.values():
        rack.ssh("spark2", script)
    seen = rack.verify("--limit", "spark2", check=False)
    assert seen.returncode == 1
    missing = [name for name, (_, line) in BROKEN.items() if line not in seen.stdout]
    assert not missing, seen.stdout
    others = rack.ssh("spark1", "tar -c --sort=name /etc | sha256sum")
    rack.deploy("-y")
    rack.verify("--limit", "spark2")
    assert rack.ssh("spark1", "tar -c --sort=name /etc | sha256sum") == others


@pytest.fixture
def wrong_lane(rack: VirtualRack) -> Iterator[None]:
    """One lane set to another speed by hand, as over any API client."""
    sentence = ("/interface/ethernet/set", "=.id=qsfp56-dd-1-3", "=speed=50G-baseCR")
    rack.inside("pyinfra", "inventory.py", "exec", "--limit", "switches", "--", *sentence)
    yield
    rack.deploy("-y")


def test_a_wrong_lane_breaks_exactly_its_nodes_pairs(rack: VirtualRack, wrong_lane: None) -> None:
    seen = rack.verify(check=False)
    assert seen.returncode == 1
    pairs = re.findall(r"(spark\d)/\S+ does not reach (spark\d)/", seen.stdout)
    assert len(pairs) == 2 * 2 * (len(NODES) - 1)
    assert all("spark2" in pair for pair in pairs)
    leg = "spark2 on leg crs812/qsfp56-dd-1-3, lanes 3-4"
    assert f"{leg}: the switch says status no-link" in seen.stdout
    assert f"{leg}: enp1s0f1np1 sees no link" in seen.stdout
    before = rack.etc()
    rack.deploy("-y")
    assert rack.etc() == before
    assert re.search(r"passed, 0 failed$", rack.verify().stdout, re.MULTILINE)
