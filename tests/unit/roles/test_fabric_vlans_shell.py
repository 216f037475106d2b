"""The scripts of a fabric on VLANs, run by a real shell on a node whose `ip`, netplan and networkd are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops.remote_files import encoded
from core.ops.shell import sudo_script
from roles.fabric import desired, scripts
from roles.fabric.desired import InterfaceState, Vlan
from tests.unit.model.racks import SWITCH, TAGGED, loaded
from tests.unit.ops.shells import calls, run, stand_in

RACK, PLAIN = loaded(TAGGED), loaded(SWITCH)
NODE = RACK.nodes["spark1"]
ON, OFF = desired.wanted(RACK, NODE), desired.wanted(PLAIN, NODE)
ABSENT = InterfaceState(known=False, up=False, mtu=0, addresses=frozenset())
UNITS = "/run/systemd/network"
RECONFIGURE = "networkctl reconfigure enp1s0f1np1 enP2p1s0f1np1"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node on which `ip link add` and `ip link delete` have an effect and a VLAN interface can exist but once."""
    for folder in ("etc/netplan", "run/systemd/network", "run/sparkrack", "sys/class/net"):
        (tmp_path / folder).mkdir(parents=True)
    stand_in(tmp_path, "systemctl", "exit 3")
    stand_in(tmp_path, "sleep")
    units = f"{tmp_path}{UNITS}"
    stand_in(tmp_path, "networkctl", f"echo \"units $(ls {units} | tr '\\n' ' ')\" >> {tmp_path}/calls")
    net = f"{tmp_path}/sys/class/net"
    stand_in(
        tmp_path,
        "ip",
        f'case "$1 $2" in "link add") mkdir {net}/$6;; "link delete") rmdir {net}/$3;; '
        f'"link set") [ -e {net}/$3 ] || case $3 in fabric*) exit 1;; esac;; esac',
    )
    stand_in(
        tmp_path,
        "netplan",
        'd="$3/run/systemd/network"; mkdir -p "$d"; for n in enp1s0f1np1 enP2p1s0f1np1 fabric0 fabric1; do '
        'if grep -qrs " $n:" "$3/etc/netplan" "$3/run/netplan"; then touch "$d/10-netplan-$n.network"; '
        'case $n in fabric*) touch "$d/10-netplan-$n.netdev";; esac; fi; done',
    )
    return tmp_path


def has(node: Path, *names: str) -> None:
    for name in names:
        (node / "sys/class/net" / name).mkdir()


def interfaces(node: Path) -> list[str]:
    return sorted(path.name for path in (node / "sys/class/net").iterdir())


def units(node: Path) -> list[str]:
    return sorted(path.name.removeprefix("10-netplan-") for path in Path(f"{node}{UNITS}").iterdir())


def printed(node: Path) -> list[str]:
    return [call for call in calls(node) if call.startswith(("ip ", "networkctl"))]


def activate(node: Path, shall: dict[str, InterfaceState], now: dict[str, InterfaceState], rack: bytes | None) -> int:
    run(sudo_script(scripts.generate(candidate=True), stdin=encoded(rack or b"")), node)
    return run(sudo_script(scripts.activate(shall, now)), node).returncode


def test_they_are_made_once_networkd_knows_of_them_and_before_it_looks_for_them(node: Path) -> None:
    assert activate(node, ON, OFF | dict.fromkeys(("fabric0", "fabric1"), ABSENT), desired.netplan(RACK, NODE)) == 0
    assert printed(node) == [
        "networkctl reload",
        "ip link set enp1s0f1np1 mtu 9000",
        "ip link set enP2p1s0f1np1 mtu 9000",
        "ip link add link enp1s0f1np1 name fabric0 type vlan protocol 802.1Q id 1100",
        "ip link add link enP2p1s0f1np1 name fabric1 type vlan protocol 802.1Q id 1101",
        "networkctl reload",
        f"{RECONFIGURE} fabric0 fabric1",
    ]
    first, *_ = [call for call in calls(node) if call.startswith("units ")]
    assert first.split()[1:] == [
        f"10-netplan-fabric{index}.{kind}" for index in (0, 1) for kind in ("netdev", "network")
    ], "at the first reload the interfaces below must still be as they were"
    assert len(units(node)) == 6


def test_one_that_networkd_made_first_is_taken(node: Path) -> None:
    has(node, "fabric0")
    assert activate(node, ON, ON | {"fabric0": ABSENT}, desired.netplan(RACK, NODE)) == 0
    assert not [call for call in printed(node) if "link add" in call]


def test_one_that_cannot_be_made_stops_it(node: Path) -> None:
    stand_in(node, "ip", 'case "$2" in add) exit 2;; esac')
    assert activate(node, ON, ON | {"fabric0": ABSENT}, desired.netplan(RACK, NODE)) != 0


def test_only_what_differs_is_made_again(node: Path) -> None:
    has(node, "fabric0", "fabric1")
    other = InterfaceState(True, True, 9000, frozenset(), Vlan("enP2p1s0f1np1", 7))
    assert activate(node, ON, ON | {"fabric1": other}, desired.netplan(RACK, NODE)) == 0
    changes = [call for call in printed(node) if "link add" in call or "link delete" in call]
    assert [call.split()[2:3] + call.split()[-2:] for call in changes] == [
        ["delete", "delete", "fabric1"],
        ["add", "id", "1101"],
    ]


def test_one_that_is_right_is_not_touched(node: Path) -> None:
    has(node, "fabric0", "fabric1")
    assert activate(node, ON, ON, desired.netplan(RACK, NODE)) == 0
    assert [call for call in printed(node) if "mtu" not in call] == [
        "networkctl reload",
        f"{RECONFIGURE} fabric0 fabric1",
    ]


def test_switched_off_they_are_removed_with_their_units(node: Path) -> None:
    has(node, "fabric0", "fabric1")
    for name in ("fabric0.netdev", "fabric0.network", "fabric1.netdev"):
        Path(f"{node}{UNITS}/10-netplan-{name}").touch()
    assert activate(node, OFF, ON, desired.netplan(PLAIN, NODE)) == 0
    assert printed(node) == ["ip link delete fabric0", "ip link delete fabric1", "networkctl reload", RECONFIGURE]
    assert interfaces(node) == []
    assert units(node) == ["enP2p1s0f1np1.network", "enp1s0f1np1.network"]


def test_with_networkmanager_what_is_gone_is_removed_before_netplan_does_the_rest(node: Path) -> None:
    stand_in(node, "systemctl")
    has(node, "fabric0", "fabric1")
    assert activate(node, OFF, ON, desired.netplan(PLAIN, NODE)) == 0
    assert [call for call in calls(node) if call.startswith(("ip ", "netplan apply", "networkctl"))] == [
        "ip link delete fabric0",
        "ip link delete fabric1",
        "netplan apply",
    ]


def tried(node: Path, rack: bytes | None) -> None:
    path = Path(f"{node}{desired.TRIED}")
    path.parent.mkdir(parents=True)
    path.write_bytes(rack or b"")


def test_a_revert_removes_what_the_trial_made(node: Path) -> None:
    tried(node, desired.netplan(RACK, NODE))
    has(node, "fabric0", "fabric1")
    for name in ("fabric0.netdev", "fabric1.network"):
        Path(f"{node}{UNITS}/10-netplan-{name}").touch()
    run(scripts.revert(OFF | dict.fromkeys(("fabric0", "fabric1"), ABSENT)), node)
    assert interfaces(node) == units(node) == []
    assert printed(node)[-4:] == [
        "ip link set enP2p1s0f1np1 mtu 9000 up",
        "ip address replace 192.168.101.1/24 dev enP2p1s0f1np1",
        "ip link set enp1s0f1np1 mtu 9000 up",
        "ip address replace 192.168.100.1/24 dev enp1s0f1np1",
    ]


def test_a_revert_makes_them_when_networkd_knows_of_them(node: Path) -> None:
    """By the file in /etc, which the trial was to replace."""
    Path(f"{node}{desired.KEPT}").write_bytes(desired.netplan(RACK, NODE) or b"")
    run(scripts.revert(ON), node)
    steps = [call for call in printed(node) if call.startswith("networkctl") or "link add" in call]
    assert [" ".join(step.split()[:3]) for step in steps] == [
        "networkctl reload",
        "ip link add",
        "ip link add",
        "networkctl reload",
        "networkctl reconfigure enP2p1s0f1np1",
    ]
    assert interfaces(node) == ["fabric0", "fabric1"]
    assert len(units(node)) == 6


@pytest.mark.parametrize("now", ["there", "removed"])
@pytest.mark.parametrize("manager", ["networkd", "NetworkManager"])
def test_a_revert_makes_again_what_was_there_without_any_file(node: Path, now: str, manager: str) -> None:
    """As an `ip link add` by hand had made it; the number that the trial gave it must not stay."""
    if manager == "NetworkManager":
        stand_in(node, "systemctl")
    has(node, *(["fabric0"] if now == "there" else []))
    tag = Vlan("enp1s0f0np0", 7, "802.1ad")
    run(scripts.revert(OFF | {"fabric0": InterfaceState(True, False, 1400, frozenset({"10.0.0.1/8"}), tag)}), node)
    assert interfaces(node) == ["fabric0"]
    made = [call for call in printed(node) if "link add" in call]
    assert made == ["ip link add link enp1s0f0np0 name fabric0 type vlan protocol 802.1ad id 7"]
    assert printed(node)[-2:] == ["ip link set fabric0 mtu 1400 down", "ip address replace 10.0.0.1/8 dev fabric0"]
    removed = "ip link delete fabric0"
    assert printed(node)[0] == removed
    assert printed(node).count(removed) == 1


SHOWN = {
    "fabric0": "7: fabric0@enp1s0f1np1: <UP> mtu 9000 qdisc noqueue\\    vlan protocol 802.1Q id 1100 <REORDER_HDR> ",
    "fabric1": "8: fabric1@enP2p1s0f1np1: <UP> mtu 9000 qdisc noqueue\\    vlan protocol 802.1Q id 1101 <REORDER_HDR> ",
}
ADDRESSES = {"fabric0": "192.168.100.1/24", "fabric1": "192.168.101.1/24"}


def proven(
    node: Path, links: dict[str, str] = SHOWN, addresses: dict[str, str] = ADDRESSES, mtu: int = 9000
) -> list[str]:
    for name in ON:
        (node / "sys/class/net" / name).mkdir(exist_ok=True)
        (node / "sys/class/net" / name / "mtu").write_text(f"{9000 if name in SHOWN else mtu}\n")
    cases = [f"'-d -o link show dev {name}') printf '%s\\n' '{line}';;" for name, line in links.items()]
    for name, address in addresses.items():
        line = f"echo '4: {name}    inet {address} brd 1.2.3.255 scope global {name}';;"
        cases += [f"'-o address show dev {name}' | '-o -4 address show dev {name}') {line}"]
    stand_in(node, "ip", f'case "$*" in {" ".join(cases)} esac')
    stand_in(node, "ping")
    done = run(scripts.proof(RACK, NODE, ON, {"spark2"}, 2), node)
    reported = done.stdout.splitlines()
    assert (done.returncode == 0) == (not reported)
    return reported


def test_the_proof_speaks_through_the_vlan_interfaces(node: Path) -> None:
    assert proven(node) == []
    assert sorted(call for call in calls(node) if call.startswith("ping")) == [
        "ping -q -n -c 1 -W 1 -M do -s 8972 -I fabric0 192.168.100.2",
        "ping -q -n -c 1 -W 1 -M do -s 8972 -I fabric1 192.168.101.2",
    ]


@pytest.mark.parametrize(
    ("old", "new"), [("id 1100 ", "id 11000 "), ("@enp1s0f1np1", "@enP7s7"), ("802.1Q", "802.1ad"), ("fabric0@", "x@")]
)
def test_a_vlan_that_is_wrong_proves_nothing(node: Path, old: str, new: str) -> None:
    links = SHOWN | {"fabric0": SHOWN["fabric0"].replace(old, new)}
    assert proven(node, links) == ["fabric0 is not VLAN 1100 on enp1s0f1np1"]


def test_an_address_below_or_a_small_mtu_below_proves_nothing(node: Path) -> None:
    assert proven(node, addresses=ADDRESSES | {"enp1s0f1np1": "10.0.0.1/8"}) == ["enp1s0f1np1 still has an address"]
    assert proven(node, mtu=1500) == [f"{name} has not mtu 9000" for name in ("enp1s0f1np1", "enP2p1s0f1np1")]


def test_one_that_is_wanted_no_longer_must_be_gone(node: Path) -> None:
    script = scripts.proof(PLAIN, NODE, ON, set(), 0)
    has(node, "fabric1")
    assert "fabric1 is still there" in run(script, node).stdout
    (node / "sys/class/net/fabric1").rmdir()
    assert "still there" not in run(script, node).stdout
