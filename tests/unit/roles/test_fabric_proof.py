"""The proof from outside, run by a real shell: it succeeds only when addresses, MTU and every peer are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.fabric import scripts
from tests.unit.model.racks import RING, SWITCH, loaded
from tests.unit.ops.shells import calls, run, stand_in

RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]
SHOWN = {"enp1s0f1np1": "192.168.100.1/24", "enP2p1s0f1np1": "192.168.101.1/24"}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Node spark1 with its fabric right and its peer there."""
    for name in SHOWN:
        interface(tmp_path, name)
    stand_in(tmp_path, "sleep")
    stand_in(tmp_path, "ping")
    show(tmp_path, SHOWN)
    return tmp_path


def interface(node: Path, name: str, mtu: int = 9000) -> None:
    folder = node / "sys/class/net" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mtu").write_text(f"{mtu}\n")


def show(node: Path, addresses: dict[str, str]) -> None:
    lines = [
        f"{name}) echo '4: {name}    inet {address} brd 1.2.3.255 scope global {name}';;"
        for name, address in addresses.items()
    ]
    stand_in(node, "ip", f'case "$5" in {" ".join(lines)} esac')


def proven(node: Path, peers: set[str]) -> tuple[bool, list[str]]:
    done = run(scripts.proof(RACK, NODE, {}, peers, 2), node)
    return done.returncode == 0, done.stdout.splitlines()


def test_all_is_right(node: Path) -> None:
    assert proven(node, {"spark2"}) == (True, [])
    pings = sorted(call for call in calls(node) if call.startswith("ping"))
    assert pings == [
        "ping -q -n -c 1 -W 1 -M do -s 8972 -I enP2p1s0f1np1 192.168.101.2",
        "ping -q -n -c 1 -W 1 -M do -s 8972 -I enp1s0f1np1 192.168.100.2",
    ]


def test_without_peers_the_addresses_alone(node: Path) -> None:
    assert proven(node, set()) == (True, [])
    assert not [call for call in calls(node) if call.startswith("ping")]


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("address", [None, "192.168.100.1/25", "192.168.100.11/24", "192.168.1.1/24"])
def test_an_address_that_is_wrong(node: Path, name: str, address: str | None) -> None:
    show(node, {key: value for key, value in (SHOWN | {name: address}).items() if value is not None})
    assert proven(node, {"spark2"}) == (False, [f"{name} has not {SHOWN[name]}"])


@pytest.mark.parametrize("name", SHOWN)
def test_an_mtu_that_is_wrong(node: Path, name: str) -> None:
    interface(node, name, 1500)
    assert proven(node, {"spark2"}) == (False, [f"{name} has not mtu 9000"])


def test_an_interface_that_is_gone(node: Path) -> None:
    (node / "sys/class/net/enp1s0f1np1/mtu").unlink()
    assert proven(node, set()) == (False, ["enp1s0f1np1 has not mtu 9000"])


def test_a_peer_that_does_not_answer(node: Path) -> None:
    stand_in(node, "ping", 'case "$*" in *192.168.101.2) exit 1;; esac')
    assert proven(node, {"spark2"}) == (
        False,
        ["spark1/enP2p1s0f1np1 does not reach spark2/enP2p1s0f1np1 (192.168.101.2) with full frames"],
    )


def test_a_peer_that_needs_a_moment(node: Path) -> None:
    stand_in(node, "ping", f"[ -e {node}/woken ] || {{ touch {node}/woken; exit 1; }}")
    assert proven(node, {"spark2"}) == (True, [])


def test_a_node_without_ping_proves_nothing(node: Path) -> None:
    stand_in(node, "ping", "exit 127")
    assert not proven(node, {"spark2"})[0]


def test_in_a_ring_each_half_reaches_its_peer() -> None:
    rack = loaded(RING)
    reported = [
        f"{here.half.interface} {there} {half}"
        for here, there, half in scripts.echoes(rack, rack.nodes["spark1"], {"spark3"})
    ]
    assert reported == [
        "enp1s0f1np1 10.100.2.2 spark3/enp1s0f0np0",
        "enP2p1s0f1np1 10.100.3.2 spark3/enP2p1s0f0np0",
    ]
