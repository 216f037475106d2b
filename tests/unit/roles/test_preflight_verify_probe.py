"""The proof of the preflight role: its script run by a real shell on a healthy node, each check made to fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.model import Rack
from core.verify.reporter import CheckReporter
from roles.preflight import desired, verify, verify_probe
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import run, stand_in, write
from tests.unit.roles.test_preflight_shell import node

IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
RACK = loaded(changed(SWITCH, ("memory:\n", f"images: [{IMAGE}]\nmemory:\n")))
ROCE = loaded(changed(SWITCH, ("    l2mtu: 9500\n", "    l2mtu: 9500\n    lossless: roce\n")))
ONE = RACK.nodes["spark1"]
CTK = """\
case $1 in
--version) printf 'NVIDIA Container Toolkit CLI version 1.18.0\\ncommit: f8daa5e2\\n';;
config) printf '[nvidia-container-runtime]\\n  #log-level = "info"\\n  mode = "auto"\\n  mode-x = 1\\n';;
esac"""
NOW = 1_800_000_000.0


def reported(root: Path, sysfs: bool = True) -> str:
    """What the script prints on a healthy node. `sysfs`: the kernel shows DMI and PCIe links as files."""
    node(root)
    stand_in(root, "systemd-id128", "echo 0123")
    stand_in(root, "ssh-keygen", "echo 256 SHA256:one root@spark1 '(ED25519)'")
    stand_in(root, "swapon")
    stand_in(root, "sysctl", "echo 7")
    stand_in(root, "dockerd", "echo Docker version 29.1.2, build 1")
    stand_in(root, "systemctl")
    stand_in(root, "docker", 'case $1 in info) echo \'[["Backing Filesystem","extfs"]]\';; *) echo sha256:aa;; esac')
    stand_in(root, "containerd", "echo containerd containerd.io v1.7.28 b98a3aa")
    stand_in(root, "nvidia-ctk", CTK)
    for place, (guid, version) in enumerate((("f72e048b-65bd", "16778240"), ("2a5d161c-0ba2", "65580"))):
        write(root, f"/sys/firmware/efi/esrt/entries/entry{place}/fw_class", f"{guid}\n")
        write(root, f"/sys/firmware/efi/esrt/entries/entry{place}/fw_version", f"{version}\n")
    write(root, "/usr/lib/systemd/system/graphical.target", "")
    (root / "usr/lib/systemd/system/default.target").symlink_to("graphical.target")
    stand_in(root, "date", "echo 1800000000.5")
    stand_in(
        root, "dmidecode", "case $2 in bios-version) echo GX10DGX.0105.2026;; *) echo ASUSTeK COMPUTER INC.;; esac"
    )
    stand_in(root, "lspci", "printf '\\t\\tLnkSta:\\tSpeed 32GT/s (ok), Width x4 (ok)\\n'")
    slots = desired.slots(RACK, ONE)
    if sysfs:
        for slot in slots:
            write(root, f"/sys/bus/pci/devices/{slot}/current_link_width", "4\n")
            write(root, f"/sys/bus/pci/devices/{slot}/current_link_speed", "32.0 GT/s PCIe\n")
        for file, value in (
            ("sys_vendor", "ASUSTeK"),
            ("board_vendor", "NVIDIA"),
            ("bios_version", "GX10DGX.0105.2026"),
        ):
            write(root, f"/sys/class/dmi/id/{file}", f"{value}\n")
    done = run(verify_probe.script(slots, slots.values(), RACK.images), root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def failures(text: str, rack: Rack = RACK, **others: str) -> list[str]:
    """What the checks of spark1 say; `others`: what other nodes of the rack have said."""
    heard = {name: verify_probe.read_facts(lines, NOW, NOW + 1) for name, lines in {"spark1": text, **others}.items()}
    own, found = heard["spark1"], []

    def check(test: Callable[..., None], *arguments: object) -> None:
        try:
            test(ONE, *arguments)
        except AssertionError as error:
            found.append(str(error).splitlines()[0])

    check(verify.test_system, own)
    check(verify.test_vendor, own)
    check(verify.test_bios, own, rack)
    check(verify.test_room, own, rack)
    check(verify.test_clock, own, heard, rack)
    check(verify.test_links, own, rack, CheckReporter([]))
    check(verify.test_handover, own)
    check(verify.test_driver_can_do_roce, own, rack)
    check(verify.test_identity_is_its_own, own, heard)
    for about in verify_probe.ALIKE:
        check(verify.test_like_the_others, heard, rack, about)
    return found


@pytest.mark.parametrize("sysfs", [True, False])
def test_a_node_that_is_right(tmp_path: Path, sysfs: bool) -> None:
    text = reported(tmp_path, sysfs)
    assert failures(text) == []
    seen = verify_probe.read_facts(text, NOW, NOW + 1)
    assert seen.links == {slot: desired.PcieLink("32GT/s", "x4") for slot in desired.slots(RACK, ONE)}
    assert seen.one("board") == ("NVIDIA" if sysfs else "ASUSTeK COMPUTER INC.")
    assert seen.clock == (-0.5, 0.5)
    assert seen.alike(ONE) == {
        "kernel": "6.17.0-1021-nvidia",
        "swap": "none",
        **dict.fromkeys(verify_probe.SYSCTLS, "7"),
        "NVIDIA driver": "580.159.03",
        "NIC firmware": "28.45.4028 (NVD1)",
        "docker engine": "Docker version 29.1.2, build 1",
        "containerd": "containerd containerd.io v1.7.28 b98a3aa",
        "NVIDIA container toolkit": "NVIDIA Container Toolkit CLI version 1.18.0",
        "mode of NVIDIA's container runtime": '"auto"',
        "default target": "graphical.target",
        "image store of docker": "docker's own",
        "kernel command line": "ro quiet init_on_alloc=0 crashkernel=1G-:0M",
        "images": f"{IMAGE} sha256:aa",
        "BIOS": "asus GX10DGX.0105.2026",
        "firmware of UEFI devices": "asus 2a5d161c-0ba2 65580, f72e048b-65bd 16778240",
    }


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return reported(tmp_path_factory.mktemp("node"))


def test_a_rack_without_a_floor_for_the_bios_skips_the_check_and_says_so(healthy: str) -> None:
    own = verify_probe.read_facts(healthy, NOW, NOW + 1)
    rack = loaded(changed(SWITCH, ("rack: two", 'rack: two\npreflight: {bios: {lenovo: "5.36"}}')))
    with pytest.raises(pytest.skip.Exception, match=r"rack\.yaml has no floor for every vendor's BIOS"):
        verify.test_bios(ONE, own, rack)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("ubuntu 24.04", "ubuntu 22.04", "spark1: OS is ubuntu 22.04, wanted ubuntu 24.04"),
        ("aarch64", "x86_64", "spark1: architecture is x86_64, wanted aarch64"),
        ("ASUSTeK", "LENOVO", "spark1: vendor is lenovo, wanted asus"),
        ("ASUSTeK", "nobody", "spark1: vendor is nvidia, wanted asus"),
        ("GX10DGX.0105", "GX10DGX.0103", "spark1: BIOS is GX10DGX.0103.2026, wanted at least 0104"),
        ("clock\t1800000000.5", "clock\t1800000007.5", "spark1: clock is off by +6.5 s, wanted at most 5 s"),
        ("clock\t1800000000.5", "", "spark1: its clock is unknown"),
        (
            "0002:01:00.1 32.0 GT/s PCIe x4",
            "0002:01:00.1 32.0 GT/s PCIe x2",
            "spark1: 0002:01:00.1 (enP2p1s0f1np1) runs at 32GT/s x2, wanted 32GT/s x4",
        ),
        (
            "0002:01:00.1 32.0 GT/s PCIe x4",
            "0002:01:00.1 ",
            "spark1: PCIe function 0002:01:00.1 (enP2p1s0f1np1) is missing",
        ),
        ("6.17.0-1021", "7.0.0-1019", "spark1: kernel 7.0.0-1019-nvidia runs without kho=off"),
        ("kernel\t6.17", "kernel\tmine", "spark1: kernel is mine.0-1021-nvidia"),
        ("machine-id\t0123", "machine-id\t", "spark1: its machine-id is unknown"),
        ("room\t/ ", "place\t/ ", "spark1: the free space on / is unknown"),
    ],
)
def test_each_gate_can_fail(healthy: str, old: str, new: str, line: str) -> None:
    assert old in healthy
    assert failures(healthy.replace(old, new)) == [line]


def test_room_can_run_out(healthy: str) -> None:
    lines = [line if not line.startswith("room\t/ ") else "room\t/ 100 4096" for line in healthy.splitlines()]
    assert failures("\n".join(lines)) == ["spark1: free on / 0.0G, wanted 10G"]


def test_roce_without_its_driver(healthy: str) -> None:
    assert failures(healthy, ROCE) == ["spark1: enP2p1s0f1np1 cannot do roce, which its switch is declared"]


def test_a_twin(healthy: str) -> None:
    twin = healthy.replace("machine-id\t0123", "machine-id\t9999")
    assert failures(healthy, spark2=twin) == ["spark1: hostkey is the same as on spark2"]
    assert failures(healthy, spark2=healthy.replace("SHA256:one", "SHA256:two")) == [
        "spark1: machine-id is the same as on spark2"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "6.17.0-1021",
            "6.17.0-1029",
            "nodes differ in kernel: 6.17.0-1021-nvidia on spark1; 6.17.0-1029-nvidia on spark2",
        ),
        ("swap\t", "swap\t/swap.img 16G", "nodes differ in swap: none on spark1; /swap.img 16G on spark2"),
        ("vm.swappiness\t7", "vm.swappiness\t60", "nodes differ in vm.swappiness: 7 on spark1; 60 on spark2"),
        ("sha256:aa", "sha256:bb", f"nodes differ in images: {IMAGE} sha256:aa on spark1; {IMAGE} sha256:bb on spark2"),
        ("quiet", "quiet kho=off", "nodes differ in kernel command line: nothing more on spark1; kho=off on spark2"),
        (
            "v1.7.28",
            "v2.1.0",
            (
                "nodes differ in containerd: containerd containerd.io v1.7.28 b98a3aa on spark1; "
                "containerd containerd.io v2.1.0 b98a3aa on spark2"
            ),
        ),
        (
            "version 1.18.0",
            "version 1.19.1",
            (
                "nodes differ in NVIDIA container toolkit: NVIDIA Container Toolkit CLI "
                "version 1.18.0 on spark1; NVIDIA Container Toolkit CLI version 1.19.1 on spark2"
            ),
        ),
        ('"auto"', '"cdi"', 'nodes differ in mode of NVIDIA\'s container runtime: "auto" on spark1; "cdi" on spark2'),
        (
            "graphical",
            "multi-user",
            "nodes differ in default target: graphical.target on spark1; multi-user.target on spark2",
        ),
        (
            "docker's own",
            "containerd's",
            "nodes differ in image store of docker: docker's own on spark1; containerd's on spark2",
        ),
        ("580.159.03", "580.173.02", "nodes differ in NVIDIA driver: 580.159.03 on spark1; 580.173.02 on spark2"),
    ],
)
def test_each_difference_is_reported(healthy: str, old: str, new: str, line: str) -> None:
    other = healthy.replace("machine-id\t0123", "machine-id\t9").replace("SHA256:one", "SHA256:two").replace(old, new)
    assert failures(healthy, spark2=other) == [line]


def test_firmware_of_devices_is_compared_within_a_vendor(healthy: str) -> None:
    other = healthy.replace("machine-id\t0123", "machine-id\t9").replace("SHA256:one", "SHA256:two")
    other = other.replace("16778240", "16777472")
    assert failures(healthy, spark2=other) == [], "spark2 is of another vendor"
    alike = loaded(changed(SWITCH, ("vendor: lenovo", "vendor: asus")))
    (line,) = failures(healthy, alike, spark2=other)
    assert line == (
        "nodes differ in firmware of UEFI devices: asus 2a5d161c-0ba2 65580, f72e048b-65bd 16778240 on spark1; "
        "asus 2a5d161c-0ba2 65580, f72e048b-65bd 16777472 on spark2"
    )


def test_a_node_whose_kernel_shows_no_firmware_of_devices_differs_from_those_with_it(healthy: str) -> None:
    other = healthy.replace("machine-id\t0123", "machine-id\t9").replace("SHA256:one", "SHA256:two")
    other = "".join(line for line in other.splitlines(keepends=True) if not line.startswith("device\t"))
    alike = loaded(changed(SWITCH, ("vendor: lenovo", "vendor: asus")))
    (line,) = failures(healthy, alike, spark2=other)
    assert line == (
        "nodes differ in firmware of UEFI devices: asus 2a5d161c-0ba2 65580, f72e048b-65bd 16778240 on spark1; "
        "asus none on spark2"
    )


def test_images_are_compared_where_docker_runs(healthy: str) -> None:
    lines = [line for line in healthy.splitlines() if not line.startswith("image\t")]
    other = "\n".join(lines).replace("machine-id\t0123", "machine-id\t9").replace("SHA256:one", "SHA256:two")
    assert failures(healthy, spark2=other) == []


def test_hostile_names_stay_words() -> None:
    text = verify_probe.script(["0;reboot"], ["$(reboot)"], ["a'b`c`"])
    assert "'0;reboot'" in text
    assert "'$(reboot)'" in text
    assert "'a'\"'\"'b`c`'" in text
