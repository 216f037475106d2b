"""What preflight asks of a node, run by a real shell in a folder like a node's, with stand-ins for its tools."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from core.ops import host_facts
from core.util.managed_file import header
from roles.preflight import parse
from roles.preflight.desired import CLIENT, ECN, HOTPLUG, LOGIN, SUDOERS, MachineFacts, PcieLink
from roles.preflight.facts import CMDLINE, LASTING, MACHINE_ID, NOW, OS
from tests.unit.ops.shells import calls, rooted, run, stand_in, write
from tests.unit.roles.nodefacts import reported

COMMANDS = host_facts._registered["preflight"].commands
LSPCI = """\
0000:01:00.1 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\tSubsystem: Mellanox Technologies Device 0001
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x8, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width x4 (downgraded)
\t\t\tTrErr- Train- SlotClk+
\t\tLnkSta2: Current De-emphasis Level: -6dB

0002:01:00.1 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x2 (downgraded)
"""
"""As lspci 3.9 and 3.13 print a function with -vv, shortened."""
DMI = """\
case $2 in
system-manufacturer) printf '# SMBIOS implementations newer than version 3.5.0 are not\\n# supported.\\nLENOVO\\n';;
baseboard-manufacturer) printf '%s\\n' 'a\\tb  $(reboot) * ; "x"';;
system-product-name) echo 'ThinkStation  PGX ';;
bios-version) echo 5.36_1.2;;
esac"""


FWUPD = """\
{
  "Devices" : [
    {
      "Name" : "Embedded Controller",
      "Guid" : [ "2a5d161c-0ba2-4136-94b3-c027f0a7e5fc" ],
      "Plugin" : "uefi_capsule",
      "Flags" : [ "internal", "updatable" ],
      "Version" : "0.1.44"
    },
    {
      "Name" : "UEFI Device Firmware",
      "Guid" : [ "f72e048b-65bd-4e71-9071-1ac7045223e5", "9cd54062-d764-51a7-a780-51a3695beae2" ],
      "Flags" : [ "internal", "updatable" ],
      "Version" : "16778240"
    },
    {
      "Name" : "UEFI Device Firmware",
      "Guid" : [ "c1c3dd44-1a29-5b2f-a3a6-0f4e8d9f0a51" ],
      "Flags" : [ "internal", "updatable" ],
      "Version" : "33620736",
      "Releases" : [ { "Version" : "33620737", "Uri" : "https://fwupd.org/downloads/x.cab" } ]
    },
    {
      "Name" : "System Firmware",
      "Guid" : [ "5ffdbc0d-f340-441c-a803-8439c8c0ae10" ],
      "Flags" : [ "internal" ],
      "Version" : "5.36"
    },
    {
      "Name" : "USB hub of a screen",
      "Guid" : [ "d00564ae-a4cf-509a-a4c2-b7062cd924bb" ],
      "Flags" : [ "updatable" ],
      "Version" : "50.40"
    },
    { "DeviceId" : "bbc98c073ac3282642278424d95dc59fcd055153", "Guid" : [ "c9ddd069-c7f2-58c5-b382-0487e683463a" ] }
  ]
}
"""
"""In the form of fwupd 1.9 and 2.0 (contrib/qubes/test/fwupd_logs.py of fwupd; the embedded controller as in
fwupd/firmware-lenovo issue 528): one without a version, one that is plugged in, and two of the same name."""


def node(root: Path) -> Path:
    """A node with a card, tools and a host key."""
    for key, path in ((OS, OS), (CMDLINE, CMDLINE), (MACHINE_ID, MACHINE_ID)):
        write(root, path, reported()[key])
    for name in ("enp1s0f1np1", "enP2p1s0f1np1"):
        (root / "sys/class/net" / name).mkdir(parents=True)
    write(root, f"/sys/class/net/enp1s0f1np1/{ECN}", "1\n")
    write(root, "/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA root@spark1\n")
    write(root, "/etc/ssh/ssh_host_rsa_key.pub", "ssh-rsa BBBB\\n root@spark1")
    stand_in(root, "uname", "case $1 in -m) echo aarch64;; -r) echo 6.17.0-1021-nvidia;; esac")
    stand_in(root, "dmidecode", DMI)
    stand_in(root, "nvidia-smi", "echo 580.159.03")
    stand_in(root, "dpkg-query", "echo 'installed docker.io 26.1.5'; echo no packages found >&2; exit 1")
    stand_in(root, "ethtool", "printf 'driver: mlx5_core\\nfirmware-version: 28.45.4028 (NVD1)\\nbus-info: x\\n'")
    stand_in(root, "lspci", f"cat <<'END'\n{LSPCI}END\necho 'pcilib: sysfs_read_vpd: read failed' >&2")
    stand_in(root, "systemctl", "case $1 in get-default) echo multi-user.target;; is-active) exit 3;; esac")
    stand_in(root, "docker", "echo overlay2")
    stand_in(root, "fwupdmgr", f"[ \"$1 $2\" = 'get-devices --json' ] && cat <<'END'\n{FWUPD}END")
    stand_in(root, "ip", "echo '3: x    inet 192.168.7.9/24 brd 192.168.7.255 scope global x'")
    write(
        root, "/etc/nvidia-container-runtime/config.toml", '#mode = "off"\n[nvidia-container-runtime]\nmode = "cdi"\n'
    )
    write(root, "/proc/locks", "")
    return root


def asked(root: Path, key: str) -> str:
    done = run(COMMANDS[key], root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(root: Path) -> MachineFacts:
    texts = [Path(f"{root}{path}").read_text() for path in (OS, CMDLINE, MACHINE_ID)]
    texts += [asked(root, key) for key in (LASTING, NOW)]
    return parse.facts(parse.Texts(*texts), (0.0, 0.0))


def test_a_whole_node(tmp_path: Path) -> None:
    found = facts(node(tmp_path))
    assert found.unknown == {}
    assert (found.machine, found.kernel) == ("aarch64", "6.17.0-1021-nvidia")
    assert (found.maker, found.product, found.bios) == ("LENOVO", "ThinkStation  PGX", "5.36_1.2")
    assert found.board == 'a\\tb  $(reboot) * ; "x"', "as it is: neither run nor read as an escape"
    assert (found.driver, found.engine, found.firmware) == ("580.159.03", "docker.io 26.1.5", "28.45.4028 (NVD1)")
    assert found.interfaces == {"enp1s0f1np1", "enP2p1s0f1np1"}
    assert found.ecn == {"enp1s0f1np1"}
    assert found.links == {"0000:01:00.1": PcieLink("32GT/s", "x4"), "0002:01:00.1": PcieLink("32GT/s", "x2")}
    assert found.host_keys == {"AAAA": "ssh-ed25519", "BBBB\\n": "ssh-rsa"}
    assert not found.hotplug
    assert "/" in found.room
    assert found.lockers == ()
    assert (found.toolkit_mode, found.store, found.target) == ("cdi", "overlay2", "multi-user.target")
    assert (found.wifi, found.tunnels, found.killers, found.desktop) == ({}, {}, (), False)
    assert found.clock[0] == found.clock[1] > 1_700_000_000


def test_firmware_of_the_devices_of_the_machine(tmp_path: Path) -> None:
    assert facts(node(tmp_path)).devices == {
        "Embedded Controller": "0.1.44",
        "f72e048b-65bd-4e71-9071-1ac7045223e5": "16778240",
        "c1c3dd44-1a29-5b2f-a3a6-0f4e8d9f0a51": "33620736",
    }


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 127", "fwupdmgr is not installed (package fwupd)"),
        ("echo 'Failed to connect to daemon' >&2; exit 1", "fwupdmgr ends with exit 1"),
        ("exit 124", "fwupdmgr does not answer in time"),
        ("echo '{\"Devices\": 3}'", "fwupdmgr: unexpected output '{\"Devices\": 3}'"),
        ("echo 'No hardware detected'", "fwupdmgr: unexpected output 'No hardware detected'"),
    ],
)
def test_firmware_of_devices_that_is_unknown(tmp_path: Path, script: str, why: str) -> None:
    stand_in(node(tmp_path), "fwupdmgr", script)
    found = facts(tmp_path)
    assert (dict(found.devices), dict(found.unknown)) == ({}, {"devices": why})


def test_wifi_that_is_up(tmp_path: Path) -> None:
    node(tmp_path)
    for name, flags in (("wlP9s9", "0x1003"), ("wlan1", "0x1002"), ("enP7s7", "0x1003")):
        write(tmp_path, f"/sys/class/net/{name}/flags", f"{flags}\n")
        write(tmp_path, f"/sys/class/net/{name}/type", "1\n")
    (tmp_path / "sys/class/net/wlP9s9/phy80211").mkdir()
    (tmp_path / "sys/class/net/wlan1/phy80211").mkdir()
    assert facts(tmp_path).wifi == {"wlP9s9": ("192.168.7.9",)}
    (tmp_path / "sys/class/net/wlan1/flags").unlink()
    assert run(COMMANDS[NOW], tmp_path).returncode == 9, "flags that cannot be read are not taken for off"


def test_a_tunnel_that_is_up(tmp_path: Path) -> None:
    node(tmp_path)
    for name, flags, kind in (("tailscale0", "0x10d1", "65534"), ("wg0", "0x10d0", "65534"), ("enP7s7", "0x1003", "1")):
        write(tmp_path, f"/sys/class/net/{name}/flags", f"{flags}\n")
        write(tmp_path, f"/sys/class/net/{name}/type", f"{kind}\n")
    assert facts(tmp_path).tunnels == {"tailscale0": ("192.168.7.9",)}
    stand_in(tmp_path, "ip", "exit 1")
    assert run(COMMANDS[NOW], tmp_path).returncode == 9, "addresses that cannot be read are not taken for none"


def test_active_units_that_end_processes(tmp_path: Path) -> None:
    node(tmp_path)
    stand_in(
        tmp_path,
        "systemctl",
        "case $* in get-default) echo graphical.target;; *' systemd-oomd.service '*) "
        "echo 'earlyoom.service loaded active running Early OOM Daemon';; esac",
    )
    found = facts(tmp_path)
    assert (found.killers, found.target) == (("earlyoom.service",), "graphical.target")
    assert found.desktop


def test_each_tool_is_started_once(tmp_path: Path) -> None:
    asked(node(tmp_path), LASTING)
    assert calls(tmp_path) == [
        "uname -m",
        "uname -r",
        "dmidecode -s system-manufacturer",
        "dmidecode -s baseboard-manufacturer",
        "dmidecode -s system-product-name",
        "dmidecode -s bios-version",
        "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
        "dpkg-query -W -f ${db:Status-Status} ${Package} ${Version}  docker-ce docker.io",
        "dpkg-query -W -f ${db:Status-Status} ${Package} ${Version}  containerd.io containerd",
        "dpkg-query -W -f ${db:Status-Status} ${Package} ${Version}  nvidia-container-toolkit",
        "systemctl get-default",
        "fwupdmgr get-devices --json --no-unreported-check --no-metadata-check --no-remote-check",
        "ethtool -i enp1s0f1np1",
        "lspci -D -vv -d 15b3:",
    ]


def test_a_bare_node_answers(tmp_path: Path) -> None:
    """Each tool is missing: that is an answer, and which gate it closes is not the probe's to say."""
    for tool in ("uname", "dmidecode", "nvidia-smi", "dpkg-query", "ethtool", "lspci", "systemctl", "docker"):
        stand_in(tmp_path, tool, "exit 127")
    for path in (OS, CMDLINE, MACHINE_ID):
        write(tmp_path, path, reported()[path])
    write(tmp_path, "/proc/locks")
    found = facts(tmp_path)
    assert found.unknown["maker"] == "dmidecode is not installed"
    assert found.unknown["links"] == "lspci is not installed (package pciutils)"
    assert found.unknown["driver"] == "nvidia-smi is not installed"
    assert (found.interfaces, found.firmware, found.host_keys) == (frozenset(), "", {})


def test_hotplug(tmp_path: Path) -> None:
    write(node(tmp_path), HOTPLUG)
    assert facts(tmp_path).hotplug


def test_a_host_key_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    write(node(tmp_path), "/etc/ssh/ssh_host_z_key.pub", "")
    assert run(COMMANDS[LASTING], tmp_path).returncode == 9


@pytest.mark.parametrize(
    ("daemon", "wanted"),
    [
        (None, ["/", "/var/lib/docker", "/var/lib/containerd"]),
        ('{\n  "x": 1, "data-root" : "/var/lib/other place"\n}', ["/", "/var/lib/other place", "/var/lib/containerd"]),
        ('{"data-root": "$(touch /etc/hacked)"}', ["/", "/var/lib/containerd"]),
        ('{"data-root": "/not/there"}', ["/", "/var/lib/containerd"]),
        ("no json", ["/", "/var/lib/docker", "/var/lib/containerd"]),
    ],
)  # fmt: skip
def test_where_docker_keeps_images(tmp_path: Path, daemon: str | None, wanted: list[str]) -> None:
    for folder in ("docker", "containerd", "other place"):
        (node(tmp_path) if folder == "docker" else tmp_path).joinpath("var/lib", folder).mkdir(parents=True)
    if daemon is not None:
        write(tmp_path, "/etc/docker/daemon.json", rooted(daemon, tmp_path))
    stand_in(tmp_path, "df", 'shift 3; echo "   Avail Mounted on"; for p; do echo "  7 $p"; done')
    places = [line.removeprefix("room 0 7 ").replace(str(tmp_path), "") for line in asked(tmp_path, NOW).splitlines()]
    assert [place or "/" for place in places if not place.startswith(("clock", "room", "store"))] == wanted
    assert not (tmp_path / "etc/hacked").exists()


def test_who_holds_the_dpkg_lock(tmp_path: Path) -> None:
    """This process does, and the kernel of this machine says so."""
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    write(node(tmp_path), "/var/lib/dpkg/lock-frontend")
    (tmp_path / "proc/locks").unlink()
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        pid = os.getpid()
        (tmp_path / "proc/locks").write_text(
            f"1: POSIX  ADVISORY  WRITE {pid} fd:01:{lock.stat().st_ino} 0 EOF\n"
            f"1: -> POSIX  ADVISORY  WRITE 1 fd:01:{lock.stat().st_ino} 0 EOF\n"
            "2: FLOCK  ADVISORY  WRITE 1 00:18:1 0 EOF\n"
        )
        (tmp_path / f"proc/{pid}").symlink_to(f"/proc/{pid}")
        assert [line.partition(" (")[2] for line in facts(tmp_path).lockers] == [f"pid {pid})"]
    assert facts(tmp_path).lockers == (), "a file of that number that is not this one"


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in COMMANDS.values():
        for top in ("/etc/", "/run/", "/var/", "/sys/", "/proc/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")


def test_for_whom_a_node_was_set_up(tmp_path: Path) -> None:
    assert (facts(node(tmp_path)).racks, facts(tmp_path).logins) == ((), ()), "a new node"
    write(tmp_path, CLIENT, f"{header('desk')}\nHost spark1\n    User ops\n    Port 22\n")
    write(tmp_path, "/etc/netplan/60-sparkrack-fabric.yaml", f"{header('desk')}\nnetwork:\n")
    write(tmp_path, SUDOERS, f"{LOGIN} alice and become root.\nalice ALL=(ALL:ALL) NOPASSWD: ALL\n")
    found = facts(tmp_path)
    assert (found.racks, set(found.logins)) == (("desk",), {"alice", "ops"})
    write(tmp_path, "/etc/sparkrack/fabric.env", f"{header('home')}\n")
    assert facts(tmp_path).racks == ("desk", "home")
