"""The node itself reverts a network change that no run confirms, with networkd and with NetworkManager."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual import REPOSITORY, VirtualRack

TRIAL = {"networkd": 20, "NetworkManager": 60}
"""Seconds that a node waits for proof in these tests; 90 otherwise. Under NetworkManager the change itself is `netplan
apply`, which takes 13 to 15 s in the lab on a fast machine (measured): with 20, a slow one takes it back meanwhile."""
DEPLOY = """\
from pyinfra.context import host

from roles.fabric.apply import apply as fabric

fabric(rack=host.data.rack, node=host.data.node, seconds={seconds})
"""


NETWORKD = "systemd-networkd.service systemd-networkd.socket"
MANAGER = "NetworkManager.service"
MANAGERS = ["networkd", pytest.param("NetworkManager", marks=pytest.mark.soak)]
LIVE = "ip -br -4 address | grep -q 192.168.200.2"
"""Succeeds on spark2 once the change of these tests is live."""
RENDERER = "/etc/netplan/00-renderer.yaml"


@pytest.fixture(scope="module", params=MANAGERS, autouse=True)
def manager(rack: VirtualRack, request: pytest.FixtureRequest) -> Iterator[str]:
    """Who configures the interfaces of spark2: the lab's systemd-networkd, or NetworkManager as on a DGX OS desktop."""
    if request.param == "networkd":
        yield request.param
        return
    text = "network: {version: 2, renderer: NetworkManager}"
    rack.ssh(
        "spark2", f"umask 077; echo '{text}' > {RENDERER}; systemctl disable {NETWORKD}; systemctl enable {MANAGER}"
    )
    try:
        rack.lab("reboot", "spark2")
        yield request.param
    finally:
        rack.ssh("spark2", f"rm {RENDERER}; systemctl disable {MANAGER}; systemctl enable {NETWORKD}")
        rack.lab("reboot", "spark2")


@pytest.fixture
def deploy(tmp_path: Path, manager: str) -> str:
    """A deploy file with the fabric alone and a shorter trial."""
    path = tmp_path / "deploy.py"
    path.write_text(DEPLOY.format(seconds=TRIAL[manager]))
    return str(path)


@pytest.fixture
def moved(rack: VirtualRack) -> Iterator[Path]:
    """The same rack with other fabric subnets, beside its own file."""
    path = rack.folder / "moved.yaml"
    path.write_text(rack.paths.rack.read_text().replace("192.168.10", "192.168.20"))
    yield path
    path.unlink()


def addresses(rack: VirtualRack, node: str, check: bool = True) -> str:
    """`check`: else a node that cannot be asked, as while NetworkManager reconnects it, gives what no node has."""
    return rack.ssh(node, "ip -br -4 address show dev enp1s0f1np1; cat /sys/class/net/enp1s0f1np1/mtu", check)


def cut(rack: VirtualRack, what: str) -> None:
    """Pull all cable ends out of the switch, or plug them in."""
    for lane in (1, 3, 5):
        assert rack.control({"op": "cable", "do": what, "cage": "qsfp56-dd-1", "lane": lane})["ok"]


@pytest.mark.soak
def test_what_another_run_wrote_is_kept_by_what_configures_the_interfaces(rack: VirtualRack, manager: str) -> None:
    """After a reboot, with the same file: nothing differs; and what is changed by hand is mended. Under networkd
    test_2_drift.py shows that in the first tier.
    """
    active = rack.ssh("spark2", f"systemctl is-active NetworkManager {NETWORKD.split()[0]} || true").split()
    assert active == (["active", "inactive"] if manager == "NetworkManager" else ["inactive", "active"])
    drift = rack.command("drift", "--limit", "spark2", "--only", "fabric")
    assert drift.returncode == 0, drift.stdout + drift.stderr
    before = addresses(rack, "spark2")
    rack.ssh(
        "spark2",
        "ip link set enp1s0f1np1 mtu 1500; ip address flush dev enp1s0f1np1 scope global; "
        "ip address add 192.168.100.77/24 dev enp1s0f1np1",
    )
    assert addresses(rack, "spark2") != before
    rack.deploy("-y", "--limit", "spark2", roles=("fabric",))
    assert addresses(rack, "spark2") == before


def test_the_old_network_comes_back_when_the_operator_is_killed(
    rack: VirtualRack, moved: Path, deploy: str, tmp_path: Path, manager: str
) -> None:
    """SIGKILL between the change and its confirmation: the run cannot revert it any more."""
    before, kept = addresses(rack, "spark2"), rack.ssh("spark2", "cat /etc/netplan/60-sparkrack-fabric.yaml")
    # On the node: no further login from the word "block" on, so that the change cannot be proven and confirmed before
    # the kill, however fast the machine is; then wait for the change to be live.
    rule = "INPUT -p tcp --dport 22 --syn -j DROP"
    block, allow = f"iptables -I {rule}", f"iptables -D {rule}"
    on_node = f"echo ready; read w; {block}; until {LIVE}; do sleep 0.1; done; echo live; read w; {allow}"
    waiter = subprocess.Popen(
        ["sparkrack", "lab", "ssh", "spark2", on_node],
        env=rack.environment,
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert waiter.stdin
    assert waiter.stdout
    assert waiter.stdout.readline() == b"ready\n"
    log = tmp_path / "run.log"
    with log.open("wb") as file:
        run = subprocess.Popen(
            ["sparkrack", "lab", "run", "--", "pyinfra", "inventory.py", deploy, "-y", "--limit", "spark2"],
            env={**rack.environment, "RACK": str(moved)},
            cwd=REPOSITORY,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 300
        while "Connected" not in log.read_text():
            assert run.poll() is None, f"it ended before it was connected\n{log.read_text()}"
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        waiter.stdin.write(b"block\n")
        waiter.stdin.flush()
        while not select.select([waiter.stdout], [], [], 0.1)[0]:
            assert run.poll() is None, f"it ended before the change was live\n{log.read_text()}"
            assert time.monotonic() < until, log.read_text()
        assert waiter.stdout.readline() == b"live\n"
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        waiter.stdin.close()  # ends `read`, and the rule goes
        waiter.wait(timeout=30)
    assert "192.168.200.2/24" in addresses(rack, "spark2"), "the change was not live when the operator was killed"
    assert rack.ssh("spark2", "cat /etc/netplan/60-sparkrack-fabric.yaml") == kept, "it was confirmed already"

    refused = rack.deploy("-y", "--limit", "spark2", check=False, roles=("fabric",))
    assert refused.returncode == 1
    assert "is still unconfirmed" in refused.stderr + refused.stdout

    until = time.monotonic() + 3 * TRIAL[manager]
    while addresses(rack, "spark2", check=False) != before and time.monotonic() < until:
        time.sleep(1)
    assert addresses(rack, "spark2") == before
    assert rack.ssh("spark2", "ls /run/netplan /run/sparkrack; cat /etc/netplan/60-sparkrack-fabric.yaml").endswith(
        kept
    )
    rack.verify("--limit", "spark2", "--only", "fabric")


def test_a_change_that_cannot_be_proven_is_taken_back_and_stops_the_run(
    rack: VirtualRack, moved: Path, deploy: str
) -> None:
    """The peers that were moved before cannot be reached, since this node's leg is dead."""
    before = {node: addresses(rack, node) for node in rack.nodes}
    cut(rack, "pull")
    try:
        done = rack.deploy("-y", "--limit", "nodes", check=False, rack=moved, deploy=deploy)
    finally:
        cut(rack, "plug")
    reported = done.stdout + done.stderr
    assert done.returncode == 1
    assert "does not reach" in reported
    assert "the old network is back" in reported
    assert "nodes change one at a time" in reported
    moved_on = [node for node in rack.nodes if addresses(rack, node) != before[node]]
    assert len(moved_on) == 1, "the first node has no neighbour yet; the second must fail, the third stay unchanged"
    rack.deploy("-y", roles=("fabric",))
    assert {node: addresses(rack, node) for node in rack.nodes} == before
