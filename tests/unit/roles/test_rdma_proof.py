"""The proof of the rdma role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from core.probes.protocol import UnknownError
from core.ssh.client import NodeConnections
from core.ssh.root_shell import UnreachableError
from core.verify.measurements import parse_measurement
from core.verify.plugin import unwatched
from core.verify.reporter import FAULT, MEASURED, UNKNOWN, CheckReporter, properties_named
from roles.rdma import bandwidth, desired, environment, verify
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import run, stand_in, write
from tests.unit.roles.checked_node import Machine, function_of, reported

RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]
ADDRESS = '[{"ifname":"enP7s7","addr_info":[{"local":"10.77.0.11"}]},{}]'
READ = f'while IFS= read -r l; do case $l in [A-Z]*) export "$l";; esac; done < ROOT{environment.ENV}; '


def node(root: Path) -> Path:
    """A node with our files, and tools that answer as on one that has read them."""
    files = [*environment.files(RACK, NODE, "enP7s7", {}), desired.limits(RACK), desired.manager(RACK)]
    for file in [*files, desired.arp_dropin(RACK, NODE)]:
        path = Path(f"{root}{file.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(int(file.mode, 8))
    read = READ.replace("ROOT", str(root))
    stand_in(root, "ip", f"echo '{ADDRESS}'")
    stand_in(root, "rdma", "echo 'link rocep1s0f1/1 state ACTIVE physical_state LINK_UP netdev enp1s0f1np1'")
    stand_in(root, "su", f"{read} echo unlimited; env")
    stand_in(root, "systemd-run", f"{read} echo unlimited; env")
    stand_in(root, "sysctl", 'for k in "$@"; do case $k in *ignore) echo "$k = 1";; *) echo "$k = 2";; esac; done')
    stand_in(root, "systemd-analyze", f"cat {root}{desired.ARP_DROPIN}")
    return root


def failures(root: Path, rack: Rack = RACK) -> list[str]:
    """What the checks say."""
    machine = Machine(root)
    reported: list[str] = []
    wanted = function_of(verify.wanted)(rack, NODE, machine)

    def check(test: Callable[..., None], *arguments: Any) -> None:
        properties: list[tuple[str, object]] = []
        try:
            test(*(CheckReporter(properties) if argument is CheckReporter else argument for argument in arguments))
        except AssertionError as error:
            reported.extend(properties_named(properties, FAULT) or [str(error).splitlines()[0]])

    check(verify.test_a_login_has_the_environment_and_may_pin_memory, NODE, machine, rack, wanted, CheckReporter)
    check(verify.test_a_service_has_the_environment_and_may_pin_memory, NODE, machine, wanted, CheckReporter)
    check(verify.test_nccl_conf_does_not_turn_rdma_off, NODE, machine)
    check(verify.test_each_half_answers_for_itself, NODE, machine, rack, CheckReporter)
    check(verify.test_each_half_answers_for_itself_after_a_boot, NODE, machine, rack, CheckReporter)
    return reported


def test_a_node_that_is_right(tmp_path: Path) -> None:
    assert failures(node(tmp_path)) == []


BROKEN = {
    "echo NCCL_IB_GID_INDEX=3 >> /etc/sparkrack/fabric.env": "spark1: in a service NCCL_IB_GID_INDEX is pinned to 3",
    "sed -i s/rocep1s0f1/mlx5_0/ /etc/sparkrack/fabric.env": "in a login of ops NCCL_IB_HCA is =mlx5_0, wanted =roce",
    ": > /etc/sparkrack/fabric.env": "spark1: in a service VLLM_HOST_IP is not set, wanted 10.77.0.11",
    "echo NCCL_IB_DISABLE=0x1 > /etc/nccl.conf": "spark1: /etc/nccl.conf turns RDMA off (NCCL_IB_DISABLE=0x1)",
    "echo net.ipv4.conf.all.arp_ignore=0 >> /etc/sysctl.d/zz-sparkrack-rdma.conf": (
        "spark1: net.ipv4.conf.all.arp_ignore will be 0 after a boot, not 1"
    ),
    ": > /etc/sysctl.d/zz-sparkrack-rdma.conf": "spark1: net.ipv4.conf.all.arp_ignore will be unset after a boot",
}


@pytest.mark.parametrize("script", BROKEN)
def test_what_is_broken_is_reported(tmp_path: Path, script: str) -> None:
    root = node(tmp_path)
    assert run(script, root).returncode == 0
    reported = failures(root)
    assert any(BROKEN[script] in line for line in reported), reported


TOOLS = {
    ("su", "echo 8192; env"): "spark1: ops may pin 8192 KiB, wanted unlimited",
    ("su", "echo 'su: user ops does not exist' >&2; exit 1"): "spark1: ops cannot log in: su: user ops does not exist",
    ("systemd-run", "echo 8192; env"): "spark1: a service may pin 8192 KiB, wanted unlimited",
    ("systemd-run", "exit 1"): "spark1: a service with EnvironmentFile=/etc/sparkrack/fabric.env does not start",
    ("sysctl", "exit 255"): "spark1: net.ipv4.conf.all.arp_ignore is not there",
    ("sysctl", 'for k in "$@"; do echo "$k = 2"; done'): "spark1: net.ipv4.conf.enp1s0f1np1.arp_ignore is 2, wanted 1",
}


@pytest.mark.parametrize(("tool", "script"), TOOLS)
def test_what_a_tool_says(tmp_path: Path, tool: str, script: str) -> None:
    root = node(tmp_path)
    stand_in(root, tool, script)
    reported = failures(root)
    assert any(TOOLS[tool, script] in line for line in reported), reported


def test_a_file_of_nccl_that_cannot_be_read_fails(tmp_path: Path) -> None:
    write(tmp_path, desired.NCCL_CONF, "NCCL_IB_DISABLE=0\n")
    assert reported(verify.test_nccl_conf_does_not_turn_rdma_off, tmp_path, RACK) == []
    stand_in(tmp_path, "awk", "echo 'awk: input/output error' >&2; exit 2")
    assert reported(verify.test_nccl_conf_does_not_turn_rdma_off, tmp_path, RACK) == [
        f"spark1: {desired.NCCL_CONF} cannot be read: awk: input/output error"
    ]


def test_a_configuration_of_the_next_boot_that_cannot_be_read_fails(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemd-analyze", "echo 'no such verb' >&2; exit 1")
    assert reported(verify.test_each_half_answers_for_itself_after_a_boot, tmp_path, RACK) == [
        "spark1: systemd-analyze: no such verb"
    ]


def test_a_program_that_finds_no_gid_fails(tmp_path: Path) -> None:
    check = verify.test_gids_are_found
    assert reported(check, tmp_path, RACK) == ["skipped: the node has no RDMA devices (a virtual one never has)"]
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    program = write(tmp_path, environment.GID_INDEX, "#!/bin/sh\necho 3\n")
    program.chmod(0o755)
    properties: list[tuple[str, object]] = []
    assert reported(check, tmp_path, RACK, report=CheckReporter(properties)) == []
    assert properties == [("note", "spark1: 3")]
    program.write_text("#!/bin/sh\necho 'no GID has 192.168.100.1' >&2; exit 1\n")
    assert reported(check, tmp_path, RACK) == ["spark1: no GID has 192.168.100.1"]


def test_an_address_that_no_one_holds(tmp_path: Path) -> None:
    root = node(tmp_path)
    stand_in(root, "ip", "echo '[{},{}]'")
    with pytest.raises(AssertionError, match=r"spark1: 0 interfaces hold 10\.77\.0\.11, wanted one"):
        failures(root)


class Nodes(NodeConnections):
    """As many nodes as are asked for, each the same folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getitem__(self, node: str) -> Machine:
        return Machine(self.root)


PRINTS = "@ link 200000\\n@ lanes 4\\n@ exit 0\\n@ said  1048576  5000  0.00  {}  0.01\\n"


def measured(root: Path, figures: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Faults (or what is unknown) and notes of the bandwidth check where the tools print these figures."""
    script = "".join(PRINTS.format(figure).replace("@", str(n)) for n, figure in enumerate(figures.split()))
    monkeypatch.setattr(bandwidth, "client", lambda _: f"printf '{script}'")
    monkeypatch.setattr(bandwidth, "server", lambda _: "true")
    properties: list[tuple[str, object]] = []
    with suppress(AssertionError, UnknownError):
        verify.test_bandwidth(NODE, RACK, Nodes(root), True, frozenset(), unwatched, CheckReporter(properties))
    return [*properties_named(properties, FAULT), *properties_named(properties, UNKNOWN)], list(
        properties_named(properties, "note")
    )


def test_a_healthy_figure_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, notes = measured(tmp_path, "97.5", monkeypatch)
    assert faults == []
    assert notes == [f"spark1/{name} -> spark2: 97.5 Gb/s" for name in ("enp1s0f1np1", "enP2p1s0f1np1")]


def test_a_bad_figure_is_a_fault_with_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, notes = measured(tmp_path, "13.2", monkeypatch)
    assert notes == []
    assert faults[0].startswith("spark1/enp1s0f1np1 -> spark2: 13.2 Gb/s, stale ConnectX-7: leave the cables")
    assert faults[1].startswith("spark1/enP2p1s0f1np1 -> spark2: 13.2 Gb/s")


def test_no_figure_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, _ = measured(tmp_path, "nan", monkeypatch)
    assert faults[0].startswith("spark1/enp1s0f1np1 -> spark2: not measured: ")


def test_a_deaf_end_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "server", lambda _: "echo no device >&2; exit 1")
    properties: list[tuple[str, object]] = []
    with pytest.raises(UnknownError):
        verify.test_bandwidth(NODE, RACK, Nodes(tmp_path), True, frozenset(), unwatched, CheckReporter(properties))
    assert (
        properties_named(properties, UNKNOWN)[0]
        == "spark1/enp1s0f1np1 -> spark2: the other end cannot receive: no device"
    )


def test_nothing_is_measured_unasked(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="bandwidth is measured with --bandwidth"):
        verify.test_bandwidth(NODE, RACK, Nodes(tmp_path), False, frozenset(), unwatched, CheckReporter([]))


def values(root: Path, excluded: frozenset[str] = frozenset()) -> list[tuple[object, ...]]:
    """What a report is reported of each measurement."""
    properties: list[tuple[str, object]] = []
    with suppress(AssertionError, UnknownError):
        verify.test_bandwidth(NODE, RACK, Nodes(root), True, excluded, unwatched, CheckReporter(properties))
    found = [parse_measurement(text) for text in properties_named(properties, MEASURED)]
    assert all(value.kind == "bandwidth" for value in found)
    return [(v.halves, v.sender, v.receiver, v.gbps, v.verdict, v.good) for v in found if v.kind == "bandwidth"]


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        ("97.5", ((97.5,), "healthy", True)),
        ("13.2", ((13.2,), "stale ConnectX-7", False)),
        ("nan", ((), "not measured", None)),
    ],
)
def test_a_report_is_reported_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: str, wanted: tuple[object, ...]
) -> None:
    measured(tmp_path, figures, monkeypatch)
    assert values(tmp_path) == [((half,), "spark1", "spark2", *wanted) for half in (0, 1)]


def test_a_neighbour_that_cannot_be_asked_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object, node: str) -> Machine:
        raise UnreachableError(node, "No route to host")

    monkeypatch.setattr(Nodes, "__getitem__", gone)
    assert values(tmp_path) == [((half,), "spark1", "spark2", (), "not measured", None) for half in (0, 1)]


def test_nothing_is_sent_to_a_neighbour_that_is_excluded(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="every neighbour to measure with is excluded"):
        values(tmp_path, frozenset({"spark2"}))
