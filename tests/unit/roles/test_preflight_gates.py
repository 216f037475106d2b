"""Each gate of one node: what it lets pass, and the line it refuses with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Node, Rack
from core.util.managed_file import header
from roles.access import known_hosts
from roles.docker import desired as docker
from roles.fabric import desired as fabric
from roles.memory import desired as memory
from roles.preflight import desired, dmi
from roles.rdma import environment
from sparkrack.bootstrap import node_facts
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.roles.cases import OPERATIONS, read
from tests.unit.roles.nodefacts import facts

ASUS, PGX = "ASUSTeK COMPUTER INC.", "LENOVO"
LINK = "LnkSta:\tSpeed 32GT/s (ok), Width x4 (ok)"


def rack(preflight: str = "{}", lossless: str = "none") -> Rack:
    edits = [
        ("memory:\n", f"preflight: {preflight}\nmemory:\n"),
        ("l2mtu: 9500", f"l2mtu: 9500\n    lossless: {lossless}"),
    ]
    return loaded(changed(SWITCH, *edits))


RACK = rack()
NODE = RACK.nodes["spark1"]


def refused(*edits: tuple[str, str], rack: Rack = RACK, node: Node = NODE) -> list[str]:
    return desired.gates(rack, node, facts(*edits))


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [('VERSION_ID="24.04"\nID=ubuntu', "VERSION_ID='13'\nID=debian")],
        [(f"board 0 {ASUS}", "board 0 NVIDIA")],
        [(f"maker 0 {ASUS}", "maker 0 NVIDIA")],
        [("product 0 GX10", "product 0 anything")],
        [("0105.2026", "0104.2025")],
        [("0105.2026", "1000")],
        [("kernel 0 6.17", "kernel 0 7.0"), ("ro quiet", "ro kho=off")],
        [("ro quiet", "ro kho=off")],
        [("driver 0 580.159.03", "driver 9 it failed")],
        [("engine 1 installed", "engine 1 config-files")],
        [("3456789012 /", "10485760 /")],
        [("Speed 32GT/s (ok), Width x4 (ok)", "Speed 32GT/s, Width x4 (overdriven)")],
        [("firmware 0 driver:", "firmware 71 driver:")],
    ],
)
def test_what_passes(edits: list[tuple[str, str]]) -> None:
    assert refused(*edits) == []


@pytest.mark.parametrize("case", read(OPERATIONS / "preflight.gates.yaml"), ids=lambda case: case["says"][:40])
def test_what_is_refused(case: dict[str, Any]) -> None:
    assert refused(*map(tuple, case["edits"])) == [case["says"]]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("LnkSta:\tSpeed 32GT/s, Width x4", "LnkSta:\tbroken", "PCIe links: unexpected probe output"),
        ("3456789012 /", "much /", "room on disk: unexpected probe output"),
        ("3456789012 /", "3456789012 /home", "room on disk: the output of df has no line for /"),
        ("1800000000.000000000", "1800000000.%N", "clock: unexpected probe output"),
        ("clock 0 1800000000.000000000", "clock 127", "clock: unexpected probe output"),
        (
            "hostkey 0 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIone root@spark1",
            "hostkey 0 none",
            "host keys: unexpected probe output",
        ),
        ("0123456789abcdef0123456789abcdef", "uninitialized", "/etc/machine-id: unexpected probe output"),
        ("machine 0 aarch64", "machine aarch64", "preflight: unexpected probe output 'machine aarch64'"),
        ("machine 0 aarch64", "", "unexpected probe output"),
    ],
)
def test_what_is_no_answer(old: str, new: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("/", ".")):
        facts((old, new))


def test_only_the_room_of_rack_yaml_counts() -> None:
    for wanted, passes in (("1G", True), ("1025M", False)):
        assert (refused(("3456789012 /", "1048576 /"), rack=rack(f"{{disk_free: {wanted}}}")) == []) == passes


def test_a_floor_is_one_vendors() -> None:
    beta = ("GX10DGX.0105.2026", "beta")
    assert refused(beta, rack=rack("{bios: {}}")) == []
    assert refused(beta, rack=rack('{bios: {lenovo: "5.36"}}')) == []
    (line,) = refused(rack=rack('{bios: {asus: "0106"}}'))
    assert line.startswith("BIOS: GX10DGX.0105.2026, wanted at least 0106")


def test_two_lanes_of_another_vendor_are_no_fault_of_asus() -> None:
    node = RACK.nodes["spark2"]
    (line,) = refused((ASUS, PGX), (LINK, "LnkSta: Speed 32GT/s, Width x2"), node=node)
    assert line.endswith("wanted 32GT/s x4")


def test_roce_needs_the_driver() -> None:
    roce = rack(lossless="roce")
    first, second = refused(rack=roce)
    assert first == (
        "lossless: crs812 is declared roce and the driver of enp1s0f1np1 has no ecn/roce_np/enable/3; install NVIDIA's "
        "DOCA-OFED, or declare pause; crs812 was not changed"
    )
    assert "enP2p1s0f1np1" in second
    names = ("enp1s0f1np1", "enP2p1s0f1np1")
    assert refused(*((f"interface 0 {name}", f"interface 0 {name}\necn 0 {name}") for name in names), rack=roce) == []
    (one,) = refused(("interface 0 enp1", "interface 0 enp1s0f1np1\necn 0 enp1"), rack=roce)
    assert "enP2p1s0f1np1" in one
    gone = refused(*((f"interface 0 {name}", f"x 0 {name}") for name in names), rack=roce)
    assert gone[0] == "lossless: enp1s0f1np1 is not there, so whether its driver can do roce is unknown"
    assert refused(rack=rack(lossless="pause")) == []


@pytest.mark.parametrize(
    ("makers", "vendor"),
    [
        (("NVIDIA", "NVIDIA"), "nvidia"),
        (("ASUSTeK COMPUTER INC.", "NVIDIA"), "asus"),
        (("NVIDIA", "ASUSTeK COMPUTER INC."), "asus"),
        (("LENOVO", ""), "lenovo"),
        (("Dell Inc.", "Dell Inc."), "dell"),
        (("Acer", "NVIDIA"), "acer"),
        (("GIGABYTE", "Giga-Byte Technology Co., Ltd."), "gigabyte"),
        (("HP", "HP"), "hp"),
        (("Micro-Star International Co., Ltd.", "MSI"), "msi"),
        (("LENOVO", "ASUSTeK COMPUTER INC."), None),
        (("", ""), None),
        (("Sharp", "Alpha msix"), None),
        (("To Be Filled By O.E.M.",), None),
    ],
)
def test_vendors(makers: tuple[str, ...], vendor: str | None) -> None:
    assert dmi.vendor_of(*makers) == vendor


@pytest.mark.parametrize(
    ("version", "floor", "older"),
    [
        ("GX10DGX.0105.2026", "0104", False),
        ("GX10DGX.0104.2025", "0104", False),
        ("GX10DGX.0103.2025", "0104", True),
        ("GX10DGX.0105.2026", "105", False),
        ("GX10DGX.0104.2025", "0104.2026", True),
        ("5.36_1.2", "5.36_1.2", False),
        ("5.36_1.1", "5.36_1.2", True),
        ("5.4", "5.36", True),
        ("5.36", "5.36_1", True),
        ("6", "5.36_1", False),
        ("5.36_1.2b", "5.36_1", False),
        ("0105-rc1", "0104", False),
        (" 0105 ", "0104", False),
        ("5.36_0ACUM018", "5.36_0ACUM023", True),
        ("5.36_0ACUM023", "5.36_0ACUM023", False),
        ("5.37_0ACUM001", "5.36_0ACUM023", False),
        ("S1EKT16A", "S1EKT18A", True),
        ("S1EKT18A", "S1EKT16A", False),
    ],
)
def test_bios_versions(version: str, floor: str, older: bool) -> None:
    assert dmi.older(version, floor) == older


@pytest.mark.parametrize(
    ("version", "floor"),
    [("beta", "0104"), ("", "0104"), ("GX10DGX", "0104"), ("0105x", "0104"), ("5.36_1.2b", "5.36_1.2"), ("0105", "5a"),
     ("S1EKT16A", "S1EKT16B"), ("5.36_0ACUM018", "5.36_0BCUM023"), ("5.x.2", "5.0.2"),
     ("٥.٣", "5")],
)  # fmt: skip
def test_bios_versions_that_cannot_be_compared(version: str, floor: str) -> None:
    with pytest.raises(ValueError, match="number"):
        dmi.older(version, floor)


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=4), st.lists(st.integers(0, 9999), min_size=1, max_size=4))
def test_a_version_is_older_or_the_floor_is_met(one: list[int], other: list[int]) -> None:
    length = max(len(one), len(other))
    padded = [part + [0] * (length - len(part)) for part in (one, other)]
    floor = ".".join(map(str, padded[1]))
    assert dmi.older(".".join(map(str, one)), floor) == (padded[0] < padded[1])


UNWRITTEN = loaded(
    "nodes:\n  spark1: {address: 10.77.0.11, ports: {1: spark2/1}}\n  spark2: {address: 10.77.0.12}\n"
    "access: {key: ~/.ssh/id_ed25519, user: ops}\n"
)
"""A rack without a vendor, and without a name of its own: that is the name of its folder."""


def test_a_node_without_a_vendor_in_rack_yaml_may_be_of_any_known_one() -> None:
    node = UNWRITTEN.nodes["spark1"]
    for maker in (ASUS, PGX, "NVIDIA"):
        edits = [(f"maker 0 {ASUS}", f"maker 0 {maker}"), (f"board 0 {ASUS}", "board 0 NVIDIA")]
        assert desired.vendor(node, facts(*edits)) is None
    unknown = facts((f"maker 0 {ASUS}", "maker 0 Acme"), (f"board 0 {ASUS}", "board 0 Acme"))
    assert "which no known maker of a GB10 has" in (desired.vendor(node, unknown) or "")
    silent = facts((f"maker 0 {ASUS}", "maker 127"))
    assert desired.vendor(node, silent) == "vendor: unknown: dmidecode is not installed"


def test_the_floor_of_the_bios_is_that_of_the_vendor_that_the_node_reports() -> None:
    node, old = UNWRITTEN.nodes["spark1"], ("0105.2026", "0103.2025")
    assert "preflight.bios.asus" in (desired.bios(UNWRITTEN, node, facts(old)) or "")
    lenovo = [(f"maker 0 {ASUS}", f"maker 0 {PGX}"), (f"board 0 {ASUS}", "board 0 NVIDIA")]
    assert desired.bios(UNWRITTEN, node, facts(old, *lenovo)) is None


SET_UP = "owner 0 # Written by sparkrack for the rack desk; a change here is overwritten.\nowner 0 login alice\n"
"""What the files of another operator's run on a node report."""


def test_a_node_of_another_name_or_user_is_refused_unless_rack_yaml_writes_them() -> None:
    found = facts(("machine 0 aarch64\n", f"machine 0 aarch64\n{SET_UP}"))
    assert (found.racks, found.logins) == (("desk",), ("alice",))
    assert desired.owner(RACK, found) == [], "its name and user are written"
    (line,) = desired.owner(UNWRITTEN, found)
    assert line.startswith(
        "rack: the node was set up for the rack desk, and rack.yaml is in a folder that makes its name"
    )
    assert line.endswith(f"write rack: desk, or rack: {UNWRITTEN.rack} to rename it")
    access = UNWRITTEN.access.model_copy()
    access.__pydantic_fields_set__.discard("user")
    _, line = desired.owner(UNWRITTEN.model_copy(update={"access": access}), found)
    assert line == (
        "access.user: the node was set up for the user alice, and you are ops; write access: {user: alice}, or "
        "{user: ops} to change it"
    )


def test_a_node_that_this_rack_and_this_user_set_up_is_not_refused() -> None:
    own = SET_UP.replace("desk", UNWRITTEN.rack).replace("alice", "ops")
    found = facts(("machine 0 aarch64\n", f"machine 0 aarch64\n{own}"))
    assert desired.owner(UNWRITTEN, found) == []


def test_the_files_that_show_an_owner_are_those_that_the_roles_write() -> None:
    files = (known_hosts.CLIENT, fabric.KEPT, memory.DROPIN, docker.DROPIN, environment.ENV)
    assert files == desired.OWNED
    assert known_hosts.CLIENT == desired.CLIENT
    assert node_facts.SUDOERS == desired.SUDOERS
    assert desired.OWNER in header("desk")
