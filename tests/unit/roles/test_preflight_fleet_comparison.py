"""Nodes against each other: clocks, identities that exist twice, and who is the odd one."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Rack
from roles.preflight import fleet_comparison
from roles.preflight.desired import MachineFacts
from tests.unit.model.racks import ACCESS, SUBNETS, SWITCH, changed, loaded, node, switch
from tests.unit.roles.cases import NOW
from tests.unit.roles.nodefacts import facts

NAMES = [f"spark{number}" for number in range(1, 9)]
KERNEL = ("kernel 0 6.17.0-1021-nvidia", "kernel 0 7.0.0-1019-nvidia")
ID, KEY = "0123456789abcdef0123456789abcdef", "AAAAC3NzaC1lZDI1NTE5AAAAIone"


def rack(size: int = 8) -> Rack:
    legs = [f"s/qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)][:size]
    nodes = "".join(node(name, number, {1: leg}) for number, (name, leg) in enumerate(zip(NAMES, legs, strict=False)))
    cages = {"qsfp56-dd-1": "4x100G"} | ({"qsfp56-dd-2": "4x100G"} if size > 4 else {})
    return loaded(f"rack: r\n{ACCESS}nodes:\n{nodes}switches:\n{switch('s', 0, cages)}{SUBNETS}")


EIGHT, FOUR = rack(), rack(4)


def fleet(count: int = 8, **odd: list[tuple[str, str]]) -> dict[str, MachineFacts]:
    """That many nodes of one kind, each with its own identity; `odd`: what is edited in the answers of some."""
    return {
        name: facts((ID, f"{number:032x}"), (KEY, f"KEY{number}"), *odd.get(name, []))
        for number, name in enumerate(NAMES[:count])
    }


KERNEL_7 = 'driver: {version: "580.159", kernel: 7.0.0-1019-nvidia}'


def printed(rack: Rack, nodes: dict[str, MachineFacts]) -> dict[str, list[str]]:
    found = {
        name: [
            *fleet_comparison.warnings(rack, rack.nodes[name], nodes[name]),
            *fleet_comparison.differences(rack, name, nodes),
        ]
        for name in nodes
    }
    return {name: lines for name, lines in found.items() if lines}


def test_nodes_of_one_kind() -> None:
    nodes = fleet()
    assert printed(EIGHT, nodes) == {}
    assert [fleet_comparison.refusals(EIGHT, name, nodes) for name in nodes] == [[]] * 8


def test_the_odd_one_is_named_by_itself_only() -> None:
    assert printed(EIGHT, fleet(spark3=[KERNEL])) == {
        "spark3": ["spark3 differs in kernel: 7.0.0-1019-nvidia there, 6.17.0-1021-nvidia on the other 7"]
    }


def test_two_odd_ones() -> None:
    nodes = fleet(spark3=[KERNEL], spark4=[("kernel 0 6.17.0-1021", "kernel 0 6.11.0-1")])
    assert printed(EIGHT, nodes)["spark4"] == [
        "spark4 differs in kernel: 6.11.0-1-nvidia there, 6.17.0-1021-nvidia on 6 of 8"
    ]


def test_without_a_majority_all_is_reported_once() -> None:
    nodes = fleet(4, spark3=[KERNEL], spark4=[KERNEL])
    assert printed(FOUR, nodes) == {
        "spark1": ["nodes differ in kernel: 6.17.0-1021-nvidia on spark1, spark2; 7.0.0-1019-nvidia on spark3, spark4"]
    }


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (("driver 0 580.159.03", "driver 0 580.173.02"), "NVIDIA driver: 580.173.02 there, 580.159.03 on the other 3"),
        (
            ("driver 0 580.159.03", "driver 18 Driver/library version mismatch"),
            ("NVIDIA driver: nvidia-smi ends with exit 18: Driver/library version mismatch there, 580.159.03 on the "
            "other 3"),
        ),
        (
            ("driver 0 580.159.03", "driver 127"),
            "NVIDIA driver: nvidia-smi is not installed there, 580.159.03 on the other 3",
        ),
        (
            ("28.45.4028 (NVD0000000087)", "28.43.1 (NVD1)"),
            "NIC firmware: 28.43.1 (NVD1) there, 28.45.4028 (NVD0000000087) on the other 3",
        ),
        (("firmware-version: ", "x: "), ("NIC firmware: ethtool -i names no firmware there, 28.45.4028 (NVD0000000087) "
         "on the other 3")),
        (("0105.2026", "0106.2027"), "BIOS (nvidia): GX10DGX.0106.2027 there, GX10DGX.0105.2026 on the other 3"),
        (("5:29.1.2", "5:28.0"), ("docker engine: docker-ce 5:28.0-1~ubuntu.24.04~noble there, docker-ce "
         "5:29.1.2-1~ubuntu.24.04~noble on the other 3")),
        (("engine 1 installed docker-ce", "engine 1 config-files docker-ce"),
         "docker engine: none there, docker-ce 5:29.1.2-1~ubuntu.24.04~noble on the other 3"),
        (("containerd.io 1.7.28", "containerd.io 2.1.0"), ("containerd: containerd.io 2.1.0-1~ubuntu.24.04~noble "
         "there, containerd.io 1.7.28-1~ubuntu.24.04~noble on the other 3")),
        (("toolkit 1.18.0-1", "toolkit 1.19.1-1"), ("NVIDIA container toolkit: nvidia-container-toolkit 1.19.1-1 "
         "there, nvidia-container-toolkit 1.18.0-1 on the other 3")),
        (("toolkit 0 installed nvidia-container-toolkit 1.18.0-1", "toolkit 1"),
         "NVIDIA container toolkit: none there, nvidia-container-toolkit 1.18.0-1 on the other 3"),
        (("mode 0 auto", "mode 0 cdi"), "mode of NVIDIA's container runtime: cdi there, auto on the other 3"),
        (("mode 0 auto\n", ""), "mode of NVIDIA's container runtime: none there, auto on the other 3"),
        (("target 0 multi-user", "target 0 rescue"),
         "default target: rescue.target there, multi-user.target on the other 3"),
        (('"Version" : "0.1.44", "VersionL', '"Version" : "0.1.41", "VersionL'),
         "firmware of Embedded Controller (nvidia): 0.1.41 there, 0.1.44 on the other 3"),
        (("devices 0 {", "devices 127 {"),
         ("firmware of devices: unknown (fwupdmgr is not installed (package fwupd)) there, known to fwupd on the "
          "other 3")),
        (("store 0 overlay2", "store 0 overlayfs"), "image store of docker: overlayfs there, overlay2 on the other 3"),
        (("quiet", "quiet kho=on"), "kernel command line: kho=on there, nothing more on the other 3"),
        (("ro quiet init_on_alloc=0", "ro init_on_alloc=1"),
         "kernel command line: init_on_alloc=1 there, quiet init_on_alloc=0 on the other 3"),
    ],
)  # fmt: skip
def test_each_property(edit: tuple[str, str], line: str) -> None:
    assert printed(FOUR, fleet(4, spark2=[edit])) == {"spark2": [f"spark2 differs in {line}"]}


@pytest.mark.parametrize(
    "edit",
    [
        ("root=UUID=0a1b", "root=UUID=9999"),
        ("BOOT_IMAGE=/boot/vmlinuz", "BOOT_IMAGE=/vmlinuz-6.17"),
        ("quiet", "quiet ip=10.77.0.12::10.77.0.1:255.255.255.0:spark2:eth0:off systemd.hostname=spark2"),
        ("quiet", "quiet ubda=n2.cow,base.raw eth0=tuntap,n2-m,02:5a vec1:transport=tap umid=n2 uml_dir=/x hostfs=/y"),
        ("product 0 GX10", "product 0 GX11"),
        ("store 0 overlay2", "store 1"),
        ("3456789012 /", "99999999 /"),
    ],
)
def test_what_is_a_machines_own(edit: tuple[str, str]) -> None:
    assert printed(FOUR, fleet(4, spark2=[edit])) == {}


def test_a_command_line_without_majority() -> None:
    nodes = fleet(2, spark2=[KERNEL, ("ro quiet", "ro kho=off splash")])
    assert (
        printed(FOUR, nodes)["spark1"][1]
        == "nodes differ in kernel command line: quiet on spark1; kho=off splash on spark2"
    )


def test_a_bios_is_compared_within_its_vendor() -> None:
    two = loaded(SWITCH)
    nodes = fleet(2, spark2=[("GX10DGX.0105.2026", "5.36_1.2")])
    assert printed(two, nodes) == {}


def test_locks_kho_and_wifi_are_reported() -> None:
    nodes = fleet(
        2, spark1=[("room 0", "wifi 0 wlP9s9\nlocked 0 apt-get (pid 7)\nroom 0"), ("ro quiet", "ro kho=off quiet")]
    )
    lines = printed(FOUR, nodes)["spark1"]
    assert lines[0] == "dpkg is locked now by apt-get (pid 7); packages wait for it"
    assert lines[1] == "kho=off is on the command line of kernel 6.17.0-1021-nvidia, which does not need it"
    assert lines[2].startswith("Wi-Fi: wlP9s9 is on; ")
    assert lines[2].endswith("turn it off: nmcli radio wifi off")


def test_the_interface_by_which_a_node_is_reached_is_never_to_be_turned_off() -> None:
    """A node whose address is on Wi-Fi would be cut off, also after a reboot."""
    own = str(FOUR.nodes["spark1"].address)
    nodes = fleet(2, spark1=[("room 0", f"wifi 0 wlP9s9 fe80::1 {own}\nwifi 0 wlan1 192.168.7.9\nroom 0")])
    weak, other = printed(FOUR, nodes)["spark1"]
    assert weak.startswith(f"management: {own} is on wlP9s9, Wi-Fi: leases, rendezvous and Ray depend on it, ")
    assert "radio" not in weak
    assert weak.endswith("connect enP7s7 and use its address, or declare rdma.sockets: fabric")
    assert other.startswith("Wi-Fi: wlan1 is on; ")


def test_a_tunnel_is_reported_only_when_the_node_is_reached_by_it() -> None:
    own = str(FOUR.nodes["spark1"].address)
    assert printed(FOUR, fleet(2, spark1=[("room 0", "tunnel 0 tailscale0 100.64.0.7\nroom 0")])) == {}
    (line,) = printed(FOUR, fleet(2, spark1=[("room 0", f"tunnel 0 tailscale0 {own}\nroom 0")]))["spark1"]
    assert line == (
        f"management: {own} is on tailscale0, a tunnel: leases, rendezvous and Ray end with it; use the address of a "
        "cable, or declare rdma.sockets: fabric"
    )


@pytest.mark.parametrize(
    ("edits", "row"),
    [
        ([("driver 0 580.159.03", "driver 0 590.48.01")], "driver.590-graphs"),
        ([("kernel 0 6.17.0-1021", "kernel 0 6.17.0-1008")], "kernel.6-17-1008"),
        ([("toolkit 1.18.0-1", "toolkit 1.19.1-1"), ("mode 0 auto", "mode 0 cdi")], "toolkit.cdi-freeze"),
    ],
)
def test_what_is_known_against_a_version_is_reported(edits: list[tuple[str, str]], row: str) -> None:
    nodes = {name: facts(*edits, (ID, f"{number:032x}")) for number, name in enumerate(NAMES[:2])}
    (line,) = printed(FOUR, nodes)["spark2"]
    assert line.endswith(f"({row}, docs/reference/advisories.md)")


def test_a_toolkit_in_another_mode_has_no_advisory() -> None:
    nodes = {
        name: facts(("toolkit 1.18.0-1", "toolkit 1.19.1-1"), (ID, f"{n:032x}")) for n, name in enumerate(NAMES[:2])
    }
    assert printed(FOUR, nodes) == {}


@pytest.mark.parametrize(("cmdline", "warned"), [("ro quiet", True), ("ro kho=off quiet", False)])
def test_a_declared_kernel_is_warned_of_before_the_reboot_into_it(cmdline: str, warned: bool) -> None:
    rack = loaded(changed(SWITCH, ("rack: two", f"rack: two\n{KERNEL_7}")))
    lines = fleet_comparison.known_versions(rack, facts(("ro quiet", cmdline)))
    assert [line.partition(": ")[0] for line in lines] == (["kernel 7.0.0-1019-nvidia"] if warned else [])
    assert all("`apt-get install nvidia-spark-grub-kho` before the reboot into it" in line for line in lines)


def test_each_unit_that_ends_processes_is_reported_with_its_remedy() -> None:
    nodes = fleet(2, spark1=[("room 0", "killer 0 earlyoom.service\nkiller 0 dgx-anti-oom.service\nroom 0")])
    lines = printed(FOUR, nodes)["spark1"]
    assert [line.split(" ", 1)[0] for line in lines] == ["earlyoom.service", "dgx-anti-oom.service"]
    assert lines[0].endswith("systemctl disable --now earlyoom.service")


def test_a_desktop_is_reported_on_each_node_that_has_one() -> None:
    desktop = ("room 0", "desktop 0\nroom 0")
    lines = printed(FOUR, fleet(2, spark1=[desktop], spark2=[desktop]))
    assert [len(own) for own in lines.values()] == [1, 1]
    assert lines["spark2"][0].startswith("a desktop runs (display-manager.service): it takes 2 to 3 GiB")


def test_twins_are_refused_on_both_sides() -> None:
    nodes = fleet(4)
    nodes["spark3"] = facts((ID, f"{0:032x}"), (KEY, "KEY1"))
    reported = {name: fleet_comparison.refusals(FOUR, name, nodes) for name in nodes}
    assert reported["spark4"] == []
    assert reported["spark1"] == [
        (
            "machine-id: the same as on spark3; on one of them: rm /etc/machine-id /var/lib/dbus/machine-id; "
            "systemd-machine-id-setup; reboot"
        )
    ]
    assert reported["spark2"] == [
        (
            "host key: ssh-ed25519 is the same as on spark3, so each can pass for the other; on one of them: rm "
            "/etc/ssh/ssh_host_*; ssh-keygen -A; then pin its new key"
        )
    ]
    assert [line.partition(";")[0] for line in reported["spark3"]] == [
        "machine-id: the same as on spark1",
        "host key: ssh-ed25519 is the same as on spark2, so each can pass for the other",
    ]


def exact(*offsets: float) -> dict[str, tuple[float, float]]:
    return {name: (offset, offset) for name, offset in zip(NAMES, offsets, strict=False)}


@pytest.mark.parametrize(
    ("clocks", "off"),
    [
        (exact(3.0), 3.0),
        (exact(-3.0), -3.0),
        (exact(100.0, 100.0, 100.0), 0.0),
        (exact(100.0, 100.0, 130.0), 0.0),
        (exact(130.0, 100.0, 100.0), 30.0),
        (exact(70.0, 100.0, 100.0), -30.0),
        (exact(0.0, 20.0), -10.0),
        ({"spark1": (-30.0, 1.0)}, 0.0),
        ({"spark1": (-30.0, 0.0), "spark2": (0.0, 0.0), "spark3": (0.0, 0.0)}, 0.0),
        ({"spark1": (-30.0, -10.0), "spark2": (0.0, 0.0), "spark3": (0.0, 0.0)}, -10.0),
        ({"spark1": (10.0, 10.0), "spark2": (-30.0, 4.0), "spark3": (-30.0, 4.0)}, 6.0),
    ],
)
def test_skew(clocks: dict[str, tuple[float, float]], off: float) -> None:
    assert fleet_comparison.skew("spark1", clocks) == off


bounds = st.tuples(st.floats(-50, 50), st.floats(-50, 50)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.tuples(bounds, st.floats(0, 1)), min_size=2, max_size=8))
def test_a_slow_answer_never_counts_as_skew(nodes: list[tuple[tuple[float, float], float]]) -> None:
    """Whatever the clocks really are within their bounds: no reported offset is larger than the real one."""
    clocks = {name: bound for name, (bound, _) in zip(NAMES, nodes, strict=False)}
    real = {name: low + share * (high - low) for name, ((low, high), share) in zip(NAMES, nodes, strict=False)}
    for name in clocks:
        off = fleet_comparison.skew(name, clocks)
        assert abs(off) <= abs(real[name] - median(real.values())) + 1e-9


def test_the_bounds_come_from_asking_and_answer() -> None:
    assert facts(asked=(NOW - 4, NOW + 1)).clock == (-1.0, 4.0)
    slow = facts(("clock 0 1800000000", "clock 0 1800000007"), asked=(NOW, NOW + 3))
    assert fleet_comparison.clock(FOUR, "spark1", {"spark1": slow}) is None
    late = facts(("clock 0 1800000000", "clock 0 1800000009"), asked=(NOW, NOW + 3))
    assert fleet_comparison.clock(FOUR, "spark1", {"spark1": late}) == (
        "clock: 6.0 s ahead of the operator's machine, at most 5 s is right (preflight.clock_skew); look at "
        "`timedatectl`, then `timedatectl set-ntp true`"
    )


def test_a_clock_is_judged_by_the_fleet() -> None:
    nodes = fleet(4, spark2=[("clock 0 1800000000", "clock 0 1799999990")])
    assert fleet_comparison.refusals(FOUR, "spark1", nodes) == []
    assert fleet_comparison.refusals(FOUR, "spark2", nodes)[0].startswith(
        "clock: 10.0 s behind the median of 4 nodes, at most 5 s"
    )


def test_firmware_that_fwupd_does_not_tell_is_reported_by_each_node() -> None:
    line = "firmware of devices is unknown, so EC and PD are not compared: fwupdmgr ends with exit 1"
    answer = ("devices 0 {", "devices 1 {")
    found = printed(EIGHT, fleet(2, spark1=[answer], spark2=[answer]))
    assert [[one.partition(": {")[0] for one in lines] for lines in found.values()] == [[line], [line]]


def test_a_device_that_one_node_has_is_not_compared() -> None:
    assert printed(EIGHT, fleet(2, spark2=[("Embedded Controller", "UEFI dbx")])) == {}
