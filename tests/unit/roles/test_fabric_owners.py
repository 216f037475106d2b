"""Who configures an interface of the fabric beside this rack: what is in force is asked, and named with its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.fabric import foreign_netplan
from roles.fabric.interface_owners import PROBE, in_the_way, matched, owners
from roles.fabric.networkd_match import Device
from tests.unit.ops.shells import run, stand_in, write

NAMES = ["enp1s0f1np1", "enP2p1s0f1np1"]
UNITS = "/run/systemd/network"
PROFILES = "/etc/NetworkManager/system-connections"
DEVICES = {
    "enp1s0f1np1": Device("mlx5_core", "4c:bb:47:00:00:01"),
    "enP2p1s0f1np1": Device("mlx5_core", "4c:bb:47:00:00:02"),
}
EACH = "which this rack manages; "
LINK = """\
7: enp1s0f1np1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 4c:bb:47:00:00:01 brd ff:ff:ff:ff:ff:ff
    altname enp0001s0f1np1
    altname cx7"""
"""As iproute2 prints it."""
REMOVE = "nmcli connection show lists it, nmcli connection delete removes it"


def node(root: Path, in_force: str = "enp1s0f1np1") -> Path:
    """A node with one half, which systemd-networkd configures by the entry `in_force` of netplan; no NetworkManager."""
    write(root, "/sys/class/net/enp1s0f1np1/ifindex", "7\n")
    write(root, "/sys/class/net/enp1s0f1np1/address", "4c:bb:47:00:00:01\n")
    write(root, "/run/udev/data/n7", "E:ID_NET_DRIVER=mlx5_core\nE:ID_NET_NAME=x\n")
    write(
        root,
        "/run/systemd/netif/links/7",
        f"ADMIN_STATE=configured\nNETWORK_FILE={UNITS}/10-netplan-{in_force}.network\n",
    )
    stand_in(root, "systemctl", "exit 3")
    stand_in(root, "ip", f"cat <<'END'\n{LINK}\nEND")
    return root


def managed(root: Path, profile: str) -> Path:
    """The same node with NetworkManager, which has the connection of this file in force."""
    stand_in(root, "systemctl")
    listing = f"c0ffee:/run/NetworkManager/system-connections/other.nmconnection\\nabc-1:{profile}\\n"
    stand_in(root, "nmcli", f"case $* in *show\\ enp1s0f1np1) echo abc-1;; *) printf '{listing}';; esac")
    return root


def reported(root: Path, named: tuple[str, ...] = (), ours: bool = True) -> list[str]:
    done = run(PROBE, root)
    assert done.returncode == 0, done.stderr
    return list(in_the_way(owners(done.stdout.replace(str(root), "")), NAMES, named, ours))


def test_a_node_with_our_entry_in_force_has_nothing_in_the_way(tmp_path: Path) -> None:
    found = owners(run(PROBE, node(tmp_path)).stdout)
    assert found.devices == {"enp1s0f1np1": Device("mlx5_core", "4c:bb:47:00:00:01", ("enp0001s0f1np1", "cx7"))}
    assert reported(tmp_path) == []


def test_an_entry_that_is_first_by_its_name_is_reported_with_its_file(tmp_path: Path) -> None:
    """systemd-networkd takes the first file that matches: that of the entry cx7 comes before ours."""
    write(node(tmp_path, "cx7"), "/etc/netplan/50-cx7.yaml", "network:\n  ethernets:\n    cx7:\n      dhcp4: true\n")
    write(tmp_path, "/etc/netplan/60-other.yaml", "network:\n  ethernets:\n    cx70: {}\n")
    line = f"/etc/netplan/50-cx7.yaml configures enp1s0f1np1, {EACH}remove its entry there"
    assert reported(tmp_path) == reported(tmp_path, ours=False) == [line]
    assert reported(tmp_path, ("/etc/netplan/50-cx7.yaml",)) == [], "a file that is reported already is reported once"


@pytest.mark.parametrize(("file", "before", "after"), [("05-x.network", 1, 1), ("20-x.network", 0, 1)])
def test_a_file_of_networkd_is_reported_when_it_wins_over_ours(
    tmp_path: Path, file: str, before: int, after: int
) -> None:
    write(node(tmp_path), "/run/systemd/netif/links/7", f"NETWORK_FILE=/etc/systemd/network/{file}\n")
    assert len(reported(tmp_path, ours=False)) == before
    lines = reported(tmp_path)
    assert len(lines) == after
    assert lines[0].startswith(f"/etc/systemd/network/{file} configures enp1s0f1np1, {EACH}remove that file")


def test_a_keyfile_is_reported_where_network_manager_runs(tmp_path: Path) -> None:
    keyfile = f"{PROFILES}/my cx7.nmconnection"
    write(node(tmp_path), keyfile, "[connection]\ninterface-name=enp1s0f1np1\n[wifi-security]\npsk=hunter2\n")
    write(tmp_path, f"{PROFILES}/wifi.nmconnection", "[connection]\ninterface-name=wlP9s9\n")
    assert reported(tmp_path) == [], "without NetworkManager a keyfile does nothing"
    managed(tmp_path, "/run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection")
    assert "hunter2" not in run(PROBE, tmp_path).stdout
    line = f"{keyfile}, a profile of NetworkManager, configures enp1s0f1np1, {EACH}{REMOVE}"
    assert reported(tmp_path) == reported(tmp_path, ours=False) == [line]


def test_a_profile_for_any_interface_is_reported_once_it_is_in_force_over_ours(tmp_path: Path) -> None:
    profile = "/run/NetworkManager/system-connections/Wired connection 1.nmconnection"
    managed(node(tmp_path), profile)
    assert reported(tmp_path, ours=False) == [], "before the first run it configures every interface"
    assert reported(tmp_path) == [f"{profile}, a profile of NetworkManager, configures enp1s0f1np1, {EACH}{REMOVE}"]


@pytest.mark.parametrize(
    "selector",
    [
        "[match]\ninterface-name=enp1s0f1*;enp9;",
        "[match]\ninterface-name=!enp9;&en*;",
        "[ethernet]\nmac-address=4C:BB:47:00:00:01",
    ],
)
def test_a_keyfile_that_selects_by_pattern_or_mac_address_is_reported(tmp_path: Path, selector: str) -> None:
    keyfile = f"{PROFILES}/qsfp0.nmconnection"
    write(node(tmp_path), keyfile, f"[connection]\ntype=ethernet\n{selector}\n")
    managed(tmp_path, "/run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection")
    assert reported(tmp_path) == [f"{keyfile}, a profile of NetworkManager, configures enp1s0f1np1, {EACH}{REMOVE}"]


@pytest.mark.parametrize(
    "selector",
    [
        "[match]\ninterface-name=!enp1s0f1np1;",
        "[match]\ninterface-name=!enp9;&eth*;",
        "[ethernet]\nmac-address=4c:bb:47:00:00:99",
        "[ethernet]\nmac-address-denylist=4c:bb:47:00:00:01",
        "[ethernet]\ncloned-mac-address=4c:bb:47:00:00:01",
    ],
)
def test_a_keyfile_that_selects_another_interface_is_not_reported(tmp_path: Path, selector: str) -> None:
    write(node(tmp_path), f"{PROFILES}/a.nmconnection", f"[connection]\ntype=ethernet\n{selector}\n")
    managed(tmp_path, "/run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection")
    assert reported(tmp_path) == []


MATCHING = [
    "Name=enp1s0f1np1",
    "Name=lo en*",
    "Name=!eth0",
    "Driver=mlx5*",
    "Type=ether",
    "PermanentMACAddress=4c:bb:47:00:00:09 4C:BB:47:00:00:01",
    "MACAddress = 4c:bb:47:00:00:01\nName=*",
    "Path=pci-*",
    "Name=eth0\nName=en*",
    "Name=cx7",
    "Name=enp0001*",
    "Name=!enp1s0f1np1",  # its alternative names are not excluded
]
"""Lines of a section [Match] of systemd-networkd that take the interface, or cannot be judged here."""
NOT_MATCHING = [
    "",
    "Name=enP2*",
    "Name=!enp1s0f1np1 enp0001* cx*",
    "Name=en*\nDriver=r8127",
    "Driver=!mlx5_core",
    "Type=wlan",
    "Type=!ether",
    "MACAddress=4c:bb:47:00:00:09",
    "Kind=veth",
    "SSID=x",
    "#Name=enp1s0f1np1",
    "Name=en*\nName=\nName=eth0",
]


@pytest.mark.parametrize("match", MATCHING)
def test_a_file_of_networkd_that_a_reload_puts_in_force_is_reported(tmp_path: Path, match: str) -> None:
    """The change of a run reloads networkd, so a file that was written and never loaded comes into force with it."""
    write(node(tmp_path), "/etc/systemd/network/05-cx7.network", f"[Match]\n{match}\n[Network]\nDHCP=yes\n")
    line = f"/etc/systemd/network/05-cx7.network configures enp1s0f1np1, {EACH}remove that file, then networkctl reload"
    assert reported(tmp_path) == reported(tmp_path, ours=False) == [line]


@pytest.mark.parametrize("match", NOT_MATCHING)
def test_a_file_of_networkd_for_another_interface_is_not_reported(tmp_path: Path, match: str) -> None:
    write(node(tmp_path), "/etc/systemd/network/05-cx7.network", f"[Match]\n{match}\n[Network]\nName=en*\n")
    assert reported(tmp_path) == []


def test_a_file_of_networkd_without_effect_is_not_reported(tmp_path: Path) -> None:
    """One that is sorted after ours, and one that /etc masks, or any while NetworkManager configures the node."""
    write(node(tmp_path), "/etc/systemd/network/20-cx7.network", "[Match]\nName=en*\n")
    write(tmp_path, "/usr/lib/systemd/network/05-cx7.network", "[Match]\nName=en*\n")
    write(tmp_path, "/etc/systemd/network/05-cx7.network", "")
    assert reported(tmp_path) == []
    write(tmp_path, "/etc/systemd/network/05-cx7.network", "[Match]\nName=en*\n")
    assert len(reported(tmp_path)) == 1
    managed(tmp_path, "/run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection")
    assert reported(tmp_path) == []


@pytest.mark.parametrize(
    ("setting", "count"),
    [
        ("[Link]\nMTUBytes=1500", 1),
        ("[Network]\n DHCP = yes", 1),
        ("[Address]\nAddress=10.0.0.1/8", 1),
        ("[Network]\nIPv6PrivacyExtensions=yes", 0),
        ("#MTUBytes=1500", 0),
    ],
)
def test_a_drop_in_that_changes_our_entry_is_reported(tmp_path: Path, setting: str, count: int) -> None:
    path = "/etc/systemd/network/10-netplan-enp1s0f1np1.network.d/mtu.conf"
    write(node(tmp_path), path, f"{setting}\n")
    line = f"{path} configures enp1s0f1np1, {EACH}remove that file, then networkctl reload"
    assert reported(tmp_path) == reported(tmp_path, ours=False) == [line] * count


@pytest.mark.parametrize("tool", ["nmcli", "grep"])
def test_what_cannot_be_asked_is_unknown(tmp_path: Path, tool: str) -> None:
    write(managed(node(tmp_path), "/x"), f"{PROFILES}/a.nmconnection", "[connection]\n")
    stand_in(tmp_path, tool, "exit 2")
    assert run(PROBE, tmp_path).returncode == 9


@pytest.mark.parametrize(
    "line",
    [
        "device enp1s0f1np1",
        "networkd enp1s0f1np1",
        "keyfile x",
        "profile x",
        "dropin x",
        "match /a.network Name=x",
        "nonsense",
    ],
)
def test_another_line_is_unknown(line: str) -> None:
    with pytest.raises(ValueError, match="fabric-owners: unexpected probe output"):
        owners(line)


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("{driver: mlx5_core}", NAMES),
        ("{driver: 'mlx5*'}", NAMES),
        ("{driver: [r8127, 'mlx*']}", NAMES),
        ("{driver: r8127}", []),
        ("{macaddress: '4C:BB:47:00:00:02'}", NAMES[1:]),
        ("{driver: mlx5_core, macaddress: '4c:bb:47:00:00:01'}", NAMES[:1]),
        ("{driver: r8127, name: 'en*'}", []),
        ("{name: '*'}", NAMES),
        ("{name: 'enP2*'}", NAMES[1:]),
        ("{}", []),
        ("null", []),
    ],
)
def test_an_entry_matches_as_netplan_reads_it(match: str, names: list[str]) -> None:
    content = f"network:\n  ethernets:\n    cx7:\n      match: {match}\n      dhcp4: true\n".encode()
    assert matched(content, DEVICES) == set(names)


def test_an_entry_matches_an_alternative_name() -> None:
    content = b"network: {ethernets: {a: {match: {name: cx*}}}}"
    assert matched(content, {"enp1s0f1np1": Device("mlx5_core", "4c:bb:47:00:00:01", ("cx7",))}) == {"enp1s0f1np1"}


def test_an_interface_of_which_ip_knows_nothing_is_not_judged(tmp_path: Path) -> None:
    stand_in(node(tmp_path), "ip", "exit 1")
    assert run(PROBE, tmp_path).returncode == 9


@pytest.mark.parametrize("content", [b"", b"network: [", b"network: {ethernets: [1]}", b"\xff", b"a: 1"])
def test_a_file_that_is_not_netplan_matches_nothing(content: bytes) -> None:
    assert matched(content, DEVICES) == set()


def test_an_interface_with_an_unknown_driver_is_taken_for_matched() -> None:
    content = b"network: {ethernets: {a: {match: {driver: mlx5_core}}}}"
    assert matched(content, {"enp1s0f1np1": Device("-", "4c:bb:47:00:00:01")}) == {"enp1s0f1np1"}


def adoptable(entry: str) -> str | None:
    return foreign_netplan.adoption_blocker(
        "/etc/netplan/90-NM-1.yaml", f"network:\n  ethernets:\n{entry}\n".encode(), {}
    )


def test_the_mirror_of_a_profile_can_be_taken_over() -> None:
    mirror = (
        "    NM-1: {renderer: NetworkManager, match: {name: enp1s0f1np1}, dhcp4: true, networkmanager: {uuid: '1'}}"
    )
    assert adoptable(mirror) is None
    content = f"network:\n  ethernets:\n{mirror}\n    enp1s0f1np1: {{}}\n".encode()
    assert foreign_netplan.named_otherwise([content, b"network: {version: 2}"]) == ["NM-1"]
    assert adoptable(mirror.replace("enp1s0f1np1", "enP7s7")) == "it has NM-1, too"
    assert adoptable(mirror.replace("enp1s0f1np1", "'en*'")) == "it has NM-1, too"
    assert adoptable(mirror.replace("name: enp1s0f1np1", "driver: mlx5_core")) == "it has NM-1, too"


def content_of(root: Path, text: str) -> str:
    write(root, "/etc/netplan/40-cx7.yaml", text)
    return run(foreign_netplan.CONTENT_PROBE, root).stdout


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("# author: me, tokens/s were measured, key of the cabinet\nnetwork: {ethernets: {enp1s0f1np1: {}}}\n", True),
        ("network:\n  ethernets:\n    cx7: {match: {driver: mlx5_core}}\n", True),
        ("network:\n  wifis:\n    w: {}\n  ethernets:\n    enp1s0f1np1: {}\n", False),
        ("network:\n  ethernets:\n    enp1s0f1np1: {auth: {password: hunter2}}\n", False),
        ("network:\n  ethernets:\n    enp1s0f1np1: {}\n  x: {client-key-password: hunter2}\n", False),
    ],
)
def test_a_file_is_read_whole_unless_a_key_may_hold_a_secret(tmp_path: Path, text: str, read: bool) -> None:
    assert bool(content_of(tmp_path, text)) == read
