"""Network files of others on factory nodes: kept, taken over or refused by name; in sync after a run and a reboot."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import load
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=7)

NODES = ("left", "right")
ONLY = ("--only", "fabric")
NETWORKD = "systemd-networkd.service systemd-networkd.socket"
PROFILES = "/etc/NetworkManager/system-connections"
STATIC = "addresses: [192.168.{net}.{host}/24], dhcp4: no, mtu: 9000"
OURS = "/etc/netplan/60-sparkrack-fabric.yaml"
DESKTOP = "/etc/netplan/01-network-manager-all.yaml"
PUBLISHED: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(REPOSITORY / "tests/cases/foreign/netplan.yaml")
UUID = "4f6a2c1e-0000-4000-8000-00000000000"


def netplan(*entries: str) -> str:
    return "\n".join(["network:", "  version: 2", "  ethernets:", *(f"    {entry}" for entry in entries)])


def both_halves(host: int, more: str) -> str:
    halves = (("enp1s0f1np1", 100), ("enP2p1s0f1np1", 101))
    return netplan(*(f"{name}: {{{STATIC.format(net=net, host=host)}, {more}}}" for name, net in halves))


def mirror(number: int, renderer: str, entry: str) -> str:
    return f"NM-{UUID}{number}: {{renderer: {renderer}, match: {{name: enp1s0f1np1}}, {entry}}}"


def keyfile(number: int, text: str) -> str:
    return f"[connection]\nid=foreign{number}\nuuid={UUID}{number}\ntype=ethernet\n{text}"


def put(rack: VirtualRack, node: str, path: str, text: str) -> None:
    rack.ssh(node, f"umask 077; mkdir -p '{Path(path).parent}'; cat > '{path}' <<'END'\n{text}\nEND")


@pytest.fixture(scope="module")
def rack() -> Iterator[VirtualRack]:
    """Two nodes on one cable, as they are delivered."""
    found = VirtualRack(REPOSITORY / ".lab-test-foreign", NODES)
    found.lab("down")
    try:
        found.lab("up", "--rack", str(REPOSITORY / "tests/cases/racks/valid/direct.yaml"))
        yield found
    finally:
        found.lab("down")


@pytest.fixture(scope="module")
def taking(rack: VirtualRack) -> Path:
    """The rack with fabric.adopt."""
    path = rack.paths.rack.with_name("taking.yaml")
    path.write_text(rack.paths.rack.read_text().replace("\nfabric:\n", "\nfabric:\n  adopt: true\n"))
    return path


def refused(rack: VirtualRack, taking: Path, files: Mapping[str, str]) -> None:
    """A plan refuses each node and names its file."""
    done = rack.command("plan", *ONLY, rack=taking)
    assert done.returncode == 1, done.stdout
    for path in files.values():
        assert f"refused: {path}" in done.stdout, done.stdout


def adopt(rack: VirtualRack) -> subprocess.CompletedProcess[str]:
    """`sparkrack adopt` of both nodes, into a file of its own."""
    own = load(rack.paths.rack)
    named = [word for name, node in own.nodes.items() for word in ("--node", f"{name}={node.address}")]
    out = rack.paths.rack.with_name("adopted.yaml")
    out.unlink(missing_ok=True)
    login = ("--user", own.access.user, "--key", str(own.access.key), "--known-hosts", str(own.access.known_hosts))
    return rack.command("adopt", "--out", str(out), *named, *login)


def planned(rack: VirtualRack, taking: Path) -> dict[str, dict[str, Any]]:
    """What a plan finds about each node."""
    done = rack.command("plan", "--json", *ONLY, rack=taking)
    assert done.stdout, done.stderr
    return {host["name"]: host for host in json.loads(done.stdout)["hosts"]}


def reboot(rack: VirtualRack) -> None:
    for node in NODES:
        rack.lab("reboot", node)


def in_sync(rack: VirtualRack, taking: Path) -> None:
    done = rack.command("drift", *ONLY, rack=taking)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_that_networkd_or_netplan_would_prefer_is_refused_by_name(rack: VirtualRack, taking: Path) -> None:
    """None of them is loaded: the reload of the run itself would put them in force."""
    waiting = {
        "left": "/etc/systemd/network/05-cx7.network",
        "right": "/etc/systemd/network/10-netplan-enp1s0f1np1.network.d/mtu.conf",
    }
    put(rack, "left", waiting["left"], "[Match]\nName=en?1s0f1*\n[Network]\nDHCP=yes")
    put(rack, "right", waiting["right"], "[Link]\nMTUBytes=1500")
    refused(rack, taking, waiting)
    assert rack.command("apply", "-y", *ONLY, rack=taking).returncode == 1
    assert rack.ssh("left", "ls /etc/netplan").split() == ["01-management.yaml"]
    for node, path in waiting.items():
        rack.ssh(node, f"rm '{path}'")
    entries = {"left": "/etc/netplan/50-cx7.yaml", "right": "/etc/netplan/50-cloud-init.yaml"}
    # The driver of the interfaces of a virtual node is veth; on a GB10 it is mlx5_core.
    put(rack, "left", entries["left"], netplan("cx7: {match: {driver: 've*'}, dhcp4: true, mtu: 1500}"))
    put(rack, "right", entries["right"], netplan("enP7s7: {dhcp4: no}", "enp1s0f1np1: {dhcp4: true}"))
    refused(rack, taking, entries)
    for node, path in entries.items():
        rack.ssh(node, f"rm '{path}'")


def test_a_file_with_the_effect_of_ours_stays(rack: VirtualRack, taking: Path) -> None:
    for host, node in enumerate(NODES, 1):
        put(rack, node, "/etc/netplan/40-cx7.yaml", both_halves(host, "dhcp6: no, link-local: []"))
        rack.ssh(node, "netplan apply")
    in_sync(rack, taking)
    assert rack.command("apply", "-y", *ONLY, rack=taking).returncode == 0
    reboot(rack)
    in_sync(rack, taking)
    for node in NODES:
        assert rack.ssh(node, "ls /etc/netplan").split() == ["01-management.yaml", "40-cx7.yaml"]
        rack.ssh(node, "rm /etc/netplan/40-cx7.yaml")


def test_a_file_that_differs_is_listed_by_adopt_and_plan_and_taken_over(rack: VirtualRack, taking: Path) -> None:
    files = {"left": "/etc/netplan/40-cx7.yaml", "right": f"/etc/netplan/90-NM-{UUID}1.yaml"}
    put(rack, "left", files["left"], both_halves(1, "link-local: [ipv4]"))
    entry = f"enP2p1s0f1np1: {{{STATIC.format(net=101, host=2)}}}"
    static = mirror(1, "networkd", f"{STATIC.format(net=100, host=2)}, link-local: [ipv4]")
    put(rack, "right", files["right"], netplan(static, entry))
    for node in NODES:
        rack.ssh(node, "netplan apply")
    adopted = adopt(rack)
    plan = rack.command("plan", *ONLY, rack=taking)
    for node, path in files.items():
        assert f"{node}: take over {path}" in adopted.stdout, adopted.stdout
        assert f"take over {path}" in plan.stdout, plan.stdout
    done = rack.command("apply", "-y", *ONLY, rack=taking)
    assert done.returncode == 0, done.stdout + done.stderr
    in_sync(rack, taking)
    reboot(rack)
    in_sync(rack, taking)
    for node in NODES:
        assert rack.ssh(node, "ls /etc/netplan").split() == ["01-management.yaml", "60-sparkrack-fabric.yaml"]


def put_published(rack: VirtualRack, node: str, case: Mapping[str, Any]) -> None:
    """Put a published file on a node whose fabric is as declared, for the node's own addresses and driver."""
    host = NODES.index(node) + 1
    text = case["text"].replace("mlx5_core", "veth")
    for net in (100, 101):
        text = text.replace(f"192.168.{net}.1/24", f"192.168.{net}.{host}/24")
    put(rack, node, f"/etc/netplan/{case['file']}", text)
    if not case.get("alone"):
        put(rack, node, DESKTOP, "network:\n  version: 2\n  renderer: NetworkManager")
    if case["ends"] == "stays":
        rack.ssh(node, f"mv {OURS} /root/")


def take_away(rack: VirtualRack, node: str, case: Mapping[str, Any]) -> None:
    """Remove a published file; ours is back where it was moved."""
    kept = f"/root/{Path(OURS).name}"
    rack.ssh(node, f"rm -f {DESKTOP} '/etc/netplan/{case['file']}'; [ ! -e {kept} ] || mv {kept} {OURS}")


def check_published(case: Mapping[str, Any], host: Mapping[str, Any]) -> None:
    """Compare what a plan finds with what the unit test of the corpus expects."""
    path, shape = f"/etc/netplan/{case['file']}", case["shape"]
    events = [event["message"] for operation in host["operations"] for event in operation["events"]]
    named = [message for message in events if path in message]
    if case["ends"] == "refused":
        assert host["state"] == "refused", (shape, host)
        assert any(f"it cannot be taken over, {case['why']}" in message for message in named), (shape, events)
    elif case["ends"] == "taken-over":
        assert host["state"] == "changes", (shape, host)
        assert any(message.startswith(f"take over {path}:") for message in named), (shape, events)
    else:
        assert (host["state"], named) == ("in sync", []), (shape, host)


def test_a_plan_handles_each_published_netplan_file_or_refuses_it_by_name(rack: VirtualRack, taking: Path) -> None:
    """One plan for two files, one on each node; nothing is applied."""
    in_sync(rack, taking)
    for first in range(0, len(PUBLISHED), len(NODES)):
        cases = dict(zip(NODES, PUBLISHED[first : first + len(NODES)], strict=False))
        for node, case in cases.items():
            put_published(rack, node, case)
        hosts = planned(rack, taking)
        for node, case in cases.items():
            check_published(case, hosts[node])
            take_away(rack, node, case)
    in_sync(rack, taking)


@pytest.fixture
def manager(rack: VirtualRack) -> Iterator[None]:
    """Factory nodes with NetworkManager, as a DGX OS desktop."""
    text = "network: {version: 2, renderer: NetworkManager}"
    for node in NODES:
        put(rack, node, "/etc/netplan/00-renderer.yaml", text)
        rack.ssh(
            node,
            "rm -f /etc/netplan/60-sparkrack-fabric.yaml; "
            f"systemctl disable {NETWORKD}; systemctl enable NetworkManager.service",
        )
    reboot(rack)
    yield
    for node in NODES:
        rack.ssh(
            node,
            f"rm -f /etc/netplan/00-renderer.yaml {PROFILES}/*; "
            f"systemctl enable {NETWORKD}; systemctl disable NetworkManager.service",
        )


@pytest.mark.soak
@pytest.mark.usefixtures("manager")
def test_profiles_of_networkmanager_are_refused_by_name_or_taken_over(rack: VirtualRack, taking: Path) -> None:
    profiles = {node: f"{PROFILES}/foreign{number}.nmconnection" for number, node in enumerate(NODES, 1)}
    put(rack, "left", profiles["left"], keyfile(1, "[match]\ninterface-name=enp1s0f1*;"))
    put(rack, "right", profiles["right"], keyfile(2, "interface-name=enp1s0f1np1"))
    for node in NODES:
        rack.ssh(node, "nmcli connection reload")
    refused(rack, taking, profiles)
    drift, adopted, applied = (
        rack.command("drift", "--json", *ONLY, rack=taking),
        adopt(rack),
        rack.command("apply", "-y", *ONLY, rack=taking),
    )
    assert (drift.returncode, applied.returncode) == (2, 1), (drift.stdout, applied.stdout)
    for node, path in profiles.items():
        for done in (drift, adopted, applied):
            assert path in done.stdout + done.stderr, done.stdout + done.stderr
        assert OURS not in rack.ssh(node, "ls -d /etc/netplan/*"), node
    for number, node in enumerate(NODES, 1):
        rack.ssh(node, f"nmcli connection delete foreign{number}")
    # Generic DHCP as DGX OS leaves it, and the mirror of a profile. NetworkManager itself does not manage a veth.
    put(rack, "left", f"{PROFILES}/generic.nmconnection", keyfile(3, "autoconnect-priority=-999\n[ipv4]\nmethod=auto"))
    rack.ssh("left", "nmcli connection reload; timeout 5 nmcli connection up foreign3 ifname enp1s0f1np1 || true")
    profile = mirror(4, "NetworkManager", f"addresses: [192.168.77.2/24], networkmanager: {{uuid: {UUID}4, name: m}}")
    put(rack, "right", f"/etc/netplan/90-NM-{UUID}4.yaml", netplan(profile))
    rack.ssh("right", "netplan apply")
    done = rack.command("apply", "-y", *ONLY, rack=taking)
    assert done.returncode == 0, done.stdout + done.stderr
    in_sync(rack, taking)
    reboot(rack)
    in_sync(rack, taking)
