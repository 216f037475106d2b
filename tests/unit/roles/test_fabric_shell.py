"""The fabric role's scripts, run by a real shell in folders like a node's, with stand-ins for `ip`, `ping`, netplan."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops.remote_files import encoded
from core.ops.shell import sudo_script
from roles.fabric import desired, scripts
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import calls, run, stand_in

RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]
NAMES = ["enp1s0f1np1", "enP2p1s0f1np1"]
SHALL = desired.wanted(RACK, NODE)
OURS = desired.netplan(RACK, NODE) or b""
UNITS = "/run/systemd/network"
MANAGEMENT = f"{UNITS}/10-netplan-enP7s7.network"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with a management network, networkd, and no fabric."""
    for folder in ("etc/netplan", "run/systemd/network", "run/sparkrack"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/netplan/50-cloud-init.yaml").write_text("network: {ethernets: {enP7s7: {dhcp4: true}}}\n")
    Path(f"{tmp_path}{MANAGEMENT}").write_text("management\n")
    stand_in(tmp_path, "systemctl", "exit 3")
    stand_in(tmp_path, "networkctl")
    stand_in(tmp_path, "ip")
    stand_in(tmp_path, "sleep")
    # Renders one unit for each interface that any file names, management included, as netplan does.
    stand_in(
        tmp_path,
        "netplan",
        'd="$3/run/systemd/network"; mkdir -p "$d"; '
        'for n in enp1s0f1np1 enP2p1s0f1np1 enP7s7; do if grep -qrs "$n:" "$3/etc/netplan" "$3/run/netplan"; then '
        'echo rendered > "$d/10-netplan-$n.network"; fi; done',
    )
    return tmp_path


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_candidate_is_rendered_where_nothing_acts_on_it(node: Path) -> None:
    done = run(sudo_script(scripts.generate(candidate=True), stdin=encoded(OURS)), node)
    assert done.returncode == 0, done.stderr
    tree = Path(f"{node}{scripts.TREE}")
    assert listed(tree / "etc/netplan") == ["50-cloud-init.yaml"]
    candidate = Path(f"{tree}{desired.TRIED}")
    assert candidate.read_bytes() == OURS
    assert f"{candidate.stat().st_mode & 0o777:o}" == "600"
    assert f"{tree.stat().st_mode & 0o777:o}" == "700"
    assert listed(node / "etc/netplan") == ["50-cloud-init.yaml"]
    assert not (node / "run/netplan").exists()
    assert listed(Path(f"{node}{UNITS}")) == ["10-netplan-enP7s7.network"]


def test_a_candidate_that_netplan_refuses(node: Path) -> None:
    stand_in(node, "netplan", "echo 'bad address' >&2; exit 1")
    done = run(sudo_script(scripts.generate(candidate=True), stdin=encoded(b"x")), node)
    assert done.returncode != 0
    assert "bad address" in done.stderr


def test_what_an_earlier_candidate_left_is_gone(node: Path) -> None:
    old = Path(f"{node}{scripts.TREE}{UNITS}/10-netplan-old.network")
    old.parent.mkdir(parents=True)
    old.touch()
    run(sudo_script(scripts.generate(candidate=True), stdin=encoded(OURS)), node)
    assert not old.exists()


def test_only_units_of_the_fabric_are_replaced(node: Path) -> None:
    stale = Path(f"{node}{UNITS}/10-netplan-enp1s0f1np1.link")
    stale.touch()
    run(sudo_script(scripts.generate(candidate=True), stdin=encoded(OURS)), node)
    done = run(sudo_script(scripts.activate(SHALL, SHALL)), node)
    assert done.returncode == 0, done.stderr
    assert listed(Path(f"{node}{UNITS}")) == [
        "10-netplan-enP2p1s0f1np1.network",
        "10-netplan-enP7s7.network",
        "10-netplan-enp1s0f1np1.network",
    ]
    assert Path(f"{node}{MANAGEMENT}").read_text() == "management\n"
    assert [call for call in calls(node) if call.startswith("networkctl")] == [
        "networkctl reload",
        "networkctl reconfigure enp1s0f1np1 enP2p1s0f1np1",
    ]
    assert not Path(f"{node}{scripts.TREE}").exists()


def test_the_rendered_file_of_an_entry_that_is_taken_over_goes(node: Path) -> None:
    """The mirror of a profile of NetworkManager (90-NM-UUID.yaml) is named by its UUID, which sorts before ours: its
    file would stay in force until the next boot."""
    mirror = Path(f"{node}{UNITS}/10-netplan-NM-4f6a.network")
    mirror.touch()
    run(sudo_script(scripts.generate(candidate=True), stdin=encoded(OURS)), node)
    run(sudo_script(scripts.activate(SHALL, SHALL, ["NM-4f6a"])), node)
    assert not mirror.exists()


def test_a_revert_brings_back_the_rendered_file_of_an_entry(node: Path) -> None:
    stand_in(
        node, "netplan", 'd="$3/run/systemd/network"; mkdir -p "$d"; echo mirror > "$d/10-netplan-NM-4f6a.network"'
    )
    done = run(scripts.revert(BEFORE, ["/etc/netplan/90-NM-4f6a.yaml"], ["NM-4f6a"]), node)
    assert done.returncode == 0, done.stderr
    assert Path(f"{node}{UNITS}/10-netplan-NM-4f6a.network").read_text() == "mirror\n"


def test_with_networkmanager_netplan_does_it(node: Path) -> None:
    stand_in(node, "systemctl")
    run(sudo_script(scripts.activate(SHALL, SHALL)), node)
    assert "netplan apply" in calls(node)
    assert not [call for call in calls(node) if call.startswith("networkctl")]


@pytest.mark.parametrize("tool", ["networkctl", "cp"])
def test_activation_that_fails_is_reported(node: Path, tool: str) -> None:
    run(sudo_script(scripts.generate(candidate=True), stdin=encoded(OURS)), node)
    stand_in(node, tool, "exit 1")
    assert run(sudo_script(scripts.activate(SHALL, SHALL)), node).returncode != 0


BEFORE = {
    "enp1s0f1np1": desired.InterfaceState(
        known=True, up=True, mtu=1500, addresses=frozenset({"10.9.0.1/24", "10.8.0.1/16"})
    ),
    "enP2p1s0f1np1": desired.InterfaceState(known=True, up=False, mtu=9000, addresses=frozenset()),
}


def test_a_revert_brings_back_what_was_live(node: Path) -> None:
    tried = Path(f"{node}{desired.TRIED}")
    tried.parent.mkdir(parents=True)
    tried.write_bytes(OURS)
    for name in NAMES:
        Path(f"{node}{UNITS}/10-netplan-{name}.network").touch()
    done = run(scripts.revert(BEFORE), node)
    assert done.returncode == 0, done.stderr
    assert not tried.exists()
    assert listed(Path(f"{node}{UNITS}")) == ["10-netplan-enP7s7.network"]
    reported = [call for call in calls(node) if call.startswith("ip ")]
    at = reported.index("ip link set enP2p1s0f1np1 mtu 9000 down")
    assert reported[:at] == [
        "ip address flush dev enP2p1s0f1np1 scope global",
        "ip link set enP2p1s0f1np1 mtu 9000",
        "ip address flush dev enp1s0f1np1 scope global",
        "ip link set enp1s0f1np1 mtu 1500",
    ]
    assert reported[at + 1 :] == [
        "ip link set enp1s0f1np1 mtu 1500 up",
        "ip address replace 10.8.0.1/16 dev enp1s0f1np1",
        "ip address replace 10.9.0.1/24 dev enp1s0f1np1",
    ]
    assert "enP7s7" not in "".join(calls(node))


def test_a_revert_goes_on_after_a_step_that_fails(node: Path) -> None:
    stand_in(node, "netplan", "exit 1")
    stand_in(node, "networkctl", "exit 1")
    run(scripts.revert(BEFORE), node)
    assert calls(node)[-1] == "ip address replace 10.9.0.1/24 dev enp1s0f1np1"
