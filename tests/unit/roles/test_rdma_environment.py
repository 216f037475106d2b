"""What the libraries that span nodes are reported: for each kind of cabling, and as a shell and a container read it."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given, settings

from core.model import Half, Rack, addresses_of, rdma_flows
from roles.rdma import environment
from roles.rdma.options import RdmaOptions
from tests.unit.model.racks import DIRECT, RING, SWITCH, TAGGED, changed, loaded
from tests.unit.model.random_racks import any_rack
from tests.unit.ops.shells import run

FAST = changed(SWITCH, ("4x100G", "2x200G"), ("qsfp56-dd-1-3", "qsfp56-dd-1-5"))
SLOW = changed(SWITCH, ("4x100G", "8x50G"))
TWICE = changed(
    DIRECT,
    ("{1: right/1}", "{0: right/0, 1: right/1}"),
    ("subnets: [192.168.100.0/24, 192.168.101.0/24]", "pool: 10.100.0.0/20"),
)
LOSSLESS = changed(SWITCH, ("    l2mtu: 9500\n", "    l2mtu: 9500\n    lossless: roce\n"))
RING_ONLY = {"NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN"}


def printed(text: str, name: str | None = None) -> dict[str, str]:
    rack = loaded(text)
    node = rack.nodes[name] if name else next(iter(rack.nodes.values()))
    return environment.variables(rack, node, "enP7s7", {})


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (SWITCH, "rocep1s0f1"),
        (SLOW, "rocep1s0f1"),
        (TAGGED, "rocep1s0f1"),
        (FAST, "rocep1s0f1,roceP2p1s0f1"),
        (DIRECT, "rocep1s0f1,roceP2p1s0f1"),
        (TWICE, "rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"),
        (RING, "rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"),
    ],
    ids=["100G", "50G", "100G tagged", "200G", "direct", "two cables", "ring"],
)
def test_devices_follow_the_cable(text: str, devices: str) -> None:
    found = printed(text)
    assert found["NCCL_IB_HCA"] == f"={devices}"
    assert found["UCX_NET_DEVICES"] == ",".join(f"{name}:1" for name in devices.split(","))
    assert (found.keys() >= RING_ONLY) == (text == RING) == bool(RING_ONLY & found.keys())


@pytest.mark.parametrize(
    ("text", "sockets", "address", "head"),
    [
        (SWITCH, "enP7s7", "10.77.0.12", "10.77.0.11"),
        (SWITCH + "rdma: {sockets: fabric}\n", "enp1s0f1np1", "192.168.100.2", "192.168.100.1"),
        (TAGGED + "rdma: {sockets: fabric}\n", "fabric0", "192.168.100.2", "192.168.100.1"),
    ],
)
def test_what_is_said_beside_rdma(text: str, sockets: str, address: str, head: str) -> None:
    found = printed(text, "spark2")
    assert found["NCCL_SOCKET_IFNAME"] == f"={sockets}"
    assert {found[f"{name}_SOCKET_IFNAME"] for name in ("GLOO", "TP")} == {sockets}
    assert found["OMPI_MCA_btl_tcp_if_include"] == sockets
    assert (found["VLLM_HOST_IP"], found["MASTER_ADDR"]) == (address, head)


@pytest.mark.parametrize(
    ("policy", "marked"), [("roce", True), ("ecn", True), ("none", False), ("pause", False), ("leave", False)]
)
def test_only_a_switch_with_a_class_for_rdma_has_its_mark(policy: str, marked: bool) -> None:
    found = printed(changed(LOSSLESS, ("lossless: roce", f"lossless: {policy}")))
    assert found.get("NCCL_IB_TC") == ("106" if marked else None)


def test_a_node_without_a_cable_has_no_devices() -> None:
    alone = re.sub(r"  right:.*\n", "", DIRECT).replace("{1: right/1}", "{}")
    assert not {"NCCL_IB_HCA", "UCX_NET_DEVICES"} & printed(alone).keys()
    # A file that says so is refused when it is loaded; this is for a rack that is made in another way.
    rack = loaded(alone).model_copy(update={"rdma": RdmaOptions(sockets="fabric")})
    with pytest.raises(ValueError, match=r"rdma\.sockets: left has no cable"):
        environment.variables(rack, rack.nodes["left"], "", {})


@settings(max_examples=12, deadline=None)
@given(any_rack)
def test_every_rack_and_node(text: str) -> None:
    """One line a variable without a character that a shell, systemd or docker takes for its own; no GID index; every
    device is one of the node's cabled ports, and neighbours have the same number of them."""
    rack = loaded(text)
    counts = {}
    for node in rack.nodes.values():
        content = environment.files(rack, node, "enP7s7", {})[0].content.decode()
        for line in content.splitlines()[1:]:
            assert re.fullmatch(r"[A-Za-z_]+=[A-Za-z0-9=.,:]+", line), line
        assert "GID_INDEX" not in content
        used = rdma_flows.used(rack, node.name)
        assert {a.half.port for a in used} == {port.number for port in rack.cabling.ports_of(node.name)}
        counts[node.name] = len(used)
    if rack.topology != "switch":
        assert len(set(counts.values())) == 1


def test_the_interface_that_holds_the_address() -> None:
    reported = (
        "1: lo    inet 127.0.0.1/8 scope host lo\n"
        "4: mgmt@if3    inet 10.77.0.11/24 brd 10.77.0.255 scope global mgmt\n"
        "4: mgmt@if3    inet 10.77.0.110/24 scope global secondary mgmt\n"
    )
    assert environment.holder(reported, IPv4Address("10.77.0.11")) == "mgmt"
    with pytest.raises(ValueError, match=r"no interface holds 10\.77\.0\.1,"):
        environment.holder(reported, IPv4Address("10.77.0.1"))


def test_devices_are_called_as_the_node_calls_them() -> None:
    live = environment.live_devices("/sys/class/net/enp1s0f1np1/device/infiniband/mlx5_1\n")
    assert environment.device(Half("a", 1, 0), live) == "mlx5_1"
    assert environment.device(Half("a", 1, 1), live) == "roceP2p1s0f1"
    for line in ("/sys/class/net/enp1s0f1np1", "/sys/class/net/x/device/infiniband/a b", "ls: no"):
        with pytest.raises(ValueError, match="unexpected probe output"):
            environment.live_devices(line)


def written(root: Path, text: str = SWITCH) -> tuple[Rack, Path]:
    """A folder like the root of the first node, with the files of its environment."""
    rack = loaded(text)
    for file in environment.files(rack, next(iter(rack.nodes.values())), "enP7s7", {}):
        path = Path(f"{root}{file.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    return rack, root


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_reads_it(tmp_path: Path, shell: str) -> None:
    written(tmp_path)
    profile = (tmp_path / environment.PROFILE[1:]).read_text().replace("/etc/", f"{tmp_path}/etc/")
    done = run(f"{shell} -euc '{profile}\nenv; echo left=${{_sparkrack-none}}'".replace("''", '""'), tmp_path)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert found["left"] == "none"
    assert printed(SWITCH).items() <= found.items()


def test_nothing_in_it_is_executed(tmp_path: Path) -> None:
    """Whatever is in that file, a login goes on."""
    written(tmp_path)
    hostile = "A=$(touch /run/x)\n-n=1\nB C=1\n1D=2\n;reboot\n=x\nE='`id`'\nF=last without newline"
    (tmp_path / "run").mkdir()
    (tmp_path / environment.ENV[1:]).write_text(hostile)
    script = (tmp_path / environment.PROFILE[1:]).read_text()
    done = run(f'{script}\necho "$A|$E|$F"', tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "$(touch /run/x)|'`id`'|last without newline\n", "")
    assert not (tmp_path / "run/x").exists()


def test_no_file_no_harm(tmp_path: Path) -> None:
    rack, _ = written(tmp_path)
    (tmp_path / environment.ENV[1:]).unlink()
    script = (tmp_path / environment.PROFILE[1:]).read_text()
    assert run(f"set -eu\n{script}\necho on", tmp_path).stdout == "on\n"
    assert rack.rack in script


def gids(root: Path, device: str, *entries: tuple[int, str, str]) -> None:
    """A device with entries (index, type, GID), as /sys shows them; other places are empty."""
    port = root / f"sys/class/infiniband/{device}/ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs/types").mkdir(parents=True)
    for index in range(8):
        (port / f"gids/{index}").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    for index, kind, text in entries:
        (port / f"gids/{index}").write_text(f"{text}\n")
        (port / f"gid_attrs/types/{index}").write_text(f"{kind}\n")


def standard(rack: Rack, node: str, number: int, at: int) -> list[tuple[int, str, str]]:
    """Link-local, then the fabric address, each for both versions of RoCE, version 2 of the address at `at`."""
    own = environment.gid(addresses_of(rack, node)[number].interface.ip)
    local = "fe80:0000:0000:0000:0e9d:92ff:fe00:0001"
    return [(0, "IB/RoCE v1", local), (1, "RoCE v2", local), (at - 1, "IB/RoCE v1", own), (at, "RoCE v2", own)]


def index(root: Path, *arguments: str) -> tuple[int, str, str]:
    script = (root / environment.GID_INDEX[1:]).read_text()
    done = run(f"set -- {' '.join(arguments)}\n{script}", root)
    return done.returncode, done.stdout, done.stderr


def test_gid_index_of_one_device(tmp_path: Path) -> None:
    rack, _ = written(tmp_path)
    gids(tmp_path, "rocep1s0f1", *standard(rack, "spark1", 0, at=5))
    gids(tmp_path, "roceP2p1s0f1", *standard(rack, "spark1", 1, at=3))
    assert index(tmp_path) == (0, "NCCL_IB_GID_INDEX=5\n", "")
    assert index(tmp_path, "roceP2p1s0f1") == (0, "3\n", "")
    code, reported, why = index(tmp_path, "rocep1s0f0")
    assert (code, reported, why) == (1, "", "gid-index: no fabric address is behind rocep1s0f0\n")


@pytest.mark.parametrize(("second", "wanted"), [(3, "NCCL_IB_GID_INDEX=3\n"), (5, "")])
def test_gid_index_of_both_devices(tmp_path: Path, second: int, wanted: str) -> None:
    rack, _ = written(tmp_path, FAST)
    gids(tmp_path, "rocep1s0f1", *standard(rack, "spark1", 0, at=3))
    gids(tmp_path, "roceP2p1s0f1", *standard(rack, "spark1", 1, at=second))
    code, reported, why = index(tmp_path)
    assert (code, reported) == (0, wanted)
    assert wanted or "no one index serves all devices ( rocep1s0f1 3 roceP2p1s0f1 5 )" in why


def test_no_gid(tmp_path: Path) -> None:
    rack, _ = written(tmp_path, FAST)
    assert index(tmp_path)[0] == 1, "no device at all"
    gids(tmp_path, "rocep1s0f1", *standard(rack, "spark1", 0, at=3))
    gids(tmp_path, "roceP2p1s0f1", *standard(rack, "spark2", 1, at=3))
    code, reported, why = index(tmp_path)
    assert (code, reported) == (1, "")
    assert why.startswith("gid-index: roceP2p1s0f1 has no RoCE v2 GID for 192.168.101.1")


def test_gid_of_an_address() -> None:
    assert environment.gid(IPv4Address("192.168.100.1")) == "0000:0000:0000:0000:0000:ffff:c0a8:6401"


WANTED = {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "=rocep1s0f1", "UCX_NET_DEVICES": "rocep1s0f1:1"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "/etc/profile.d/zz-nccl.sh:export NCCL_IB_DISABLE=1",
            "/etc/profile.d/zz-nccl.sh sets NCCL_IB_DISABLE to 1 for logins; 0 is right: remove it there",
        ),
        (
            "/etc/environment:UCX_NET_DEVICES='all'",
            (
                "/etc/environment sets UCX_NET_DEVICES to all for `ssh NODE COMMAND` and services of PAM; rocep1s0f1:1 "
                "is right: remove it there"
            ),
        ),
        (
            "/home/ops/.bashrc:  export NCCL_IB_GID_INDEX=3",
            (
                "/home/ops/.bashrc sets NCCL_IB_GID_INDEX to 3 for logins of ops; this rack leaves it unset: remove it "
                "there"
            ),
        ),
        (
            "/root/.profile:NCCL_NET=Socket; export NCCL_NET",
            "/root/.profile sets NCCL_NET to Socket for logins of root; this rack leaves it unset: remove it there",
        ),
        (
            "/etc/systemd/system.conf.d/x.conf:DefaultEnvironment=A=1 NCCL_IB_HCA=mlx5_0",
            (
                "/etc/systemd/system.conf.d/x.conf sets NCCL_IB_HCA to mlx5_0 for services that do not read ours; "
                "=rocep1s0f1 is right: remove it there"
            ),
        ),
        (
            "/etc/profile.d/zz.sh:export NCCL_IB_HCA=",
            "/etc/profile.d/zz.sh sets NCCL_IB_HCA to nothing for logins; =rocep1s0f1 is right: remove it there",
        ),
    ],
)
def test_the_file_that_wins_over_ours_is_named(line: str, found: str) -> None:
    assert environment.overriding_variables(line, WANTED, ["ops", "root"]) == [found]


@pytest.mark.parametrize(
    "line",
    [
        "/etc/profile.d/zz.sh:export NCCL_IB_DISABLE=0",
        "/etc/profile.d/aa.sh:export NCCL_IB_DISABLE=1",
        "/home/other/.bashrc:export NCCL_IB_DISABLE=1",
        '/etc/profile.d/zz.sh:export NCCL_IB_HCA="=rocep1s0f1"',
        "",
    ],
)
def test_a_file_that_is_read_before_ours_or_says_the_same_is_no_fault(line: str) -> None:
    assert environment.overriding_variables(line, WANTED, ["ops", "root"]) == []


def test_each_variable_of_a_rack_is_looked_for() -> None:
    assert {name for text in (SWITCH, RING, DIRECT, LOSSLESS) for name in printed(text)} <= set(environment.NAMES)
