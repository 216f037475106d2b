"""A stranger who scans a node of a unit finds the gateway alone: systemd itself, with the files as they are
rendered."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.verify.reporter import CheckReporter
from lab import namespace
from serving import desired, verify
from tests.serving.running_systemd import RunningSystemd, lacking
from tests.unit.model.serving_racks import unit
from tests.unit.roles.serving_units import content, locked

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "systemd can be started")
HEAD, PEER, GATEWAY_NODE, STRANGER = "10.77.0.11", "10.77.0.12", "10.77.0.13", "10.77.0.66"
API, RAY, RENDEZVOUS, CHOSEN, LEASES, HTTPS = 8000, 6379, 29501, 44321, 29400, 443
UNIT_PORTS = {API, RAY, RENDEZVOUS, CHOSEN}
_LISTEN = (
    "import socket, sys, time\n"
    "kept = [socket.create_server(('', int(port)), backlog=64) for port in sys.argv[1:]]\n"
    "time.sleep(100000)\n"
)
_SCAN = """
import errno, json, selectors, socket, sys
source, target, ports = sys.argv[1], sys.argv[2], list(map(int, sys.argv[3:])) or list(range(1, 65536))
found, waiting = {}, selectors.DefaultSelector()
def judge(port, one):
    found[port] = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    waiting.unregister(one)
    one.close()
while ports or waiting.get_map():
    while ports and len(waiting.get_map()) < 512:
        one = socket.socket()
        one.setblocking(False)
        one.bind((source, 0))
        code = one.connect_ex((target, port := ports.pop()))
        if code == errno.EINPROGRESS:
            waiting.register(one, selectors.EVENT_WRITE, port)
        else:
            found[port] = code
            one.close()
    ready = waiting.select(1.0)
    for key, _ in ready:
        judge(key.data, key.fileobj)
    if not ready:
        for key in list(waiting.get_map().values()):
            waiting.unregister(key.fileobj)
            key.fileobj.close()
            found[key.data] = errno.ETIMEDOUT
print(json.dumps({port: code for port, code in found.items() if code != errno.ECONNREFUSED}))
"""
"""Each TCP port of an address: those that refuse nothing, 0 for an open one."""


class Node:
    """The head of a unit of two nodes beside a gateway on a third, and a machine with any address beside it."""

    def __init__(self, folder: Path, api: dict[str, Any]) -> None:
        gateway = {"node": "n0" if api["listen"] == "local" else "n2", "keys": {"alice": {"env": "ALICE"}}}
        keys = unit(nodes=["n0", "n1"], api=api)
        self.locked = locked(keys, 3, serving={"units": {"one": keys}, "gateway": gateway})
        prefix = f"st{os.getpid()}"
        self.beside = f"{prefix}b"
        self.systemd = RunningSystemd(folder, f"{prefix}a")

    def start(self) -> None:
        ip, here = namespace.ip, self.systemd.namespace
        for name in (here, self.beside):
            namespace.create(name)
        ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.beside, namespace=here)
        ip("address", "add", f"{HEAD}/24", "dev", "eth0", namespace=here)
        for address in (STRANGER, PEER, GATEWAY_NODE):
            ip("address", "add", f"{address}/24", "dev", "eth0", namespace=self.beside)
        for name in (here, self.beside):
            ip("link", "set", "eth0", "up", namespace=name)
        files = desired.files(self.locked, "n0")
        self.systemd.write("sparkrack-one.slice", content(files, "sparkrack-one.slice"))
        coordinator = content(files, "sparkrack-serve-one-coordinator.service")
        listen = f"ExecStart={sys.executable} -S {self.systemd.units}/listen.py"
        (self.systemd.units / "listen.py").write_text(_LISTEN)
        addresses = "".join(f"{line}\n" for line in coordinator.splitlines() if line.startswith("IPAddress"))
        self.systemd.write("coordinator.service", f"[Unit]\n[Service]\n{addresses}{listen} {LEASES}\n")
        ports = " ".join(map(str, UNIT_PORTS))
        self.systemd.write("container.service", f"[Unit]\n[Service]\nSlice=sparkrack-one.slice\n{listen} {ports}\n")
        self.systemd.write("gateway.service", f"[Unit]\n[Service]\n{listen} {HTTPS}\n")
        self.systemd.start("container.service", "coordinator.service", "gateway.service")
        self.systemd.wait_for({*UNIT_PORTS, LEASES, HTTPS})

    def scanned(self, source: str, *ports: int) -> dict[int, int]:
        """What is not refused, of these or of all ports; the number is that of the error, 0 for an open port."""
        given = [source, HEAD, *map(str, ports)]
        words = ["ip", "netns", "exec", self.beside, sys.executable, "-S", "-c", _SCAN, *given]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
        return {int(port): code for port, code in json.loads(done.stdout).items()}

    def end(self) -> None:
        self.systemd.end()
        for name in (self.systemd.namespace, self.beside):
            namespace.delete(name)


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(tmp_path, getattr(request, "param", {"listen": "management"}))
    try:
        made.start()
        yield made
    finally:
        made.end()


def reached(node: Node, source: str) -> set[int]:
    """Which of the ports that are open on the node an address reaches."""
    found = node.scanned(source, *UNIT_PORTS, LEASES, HTTPS)
    return {port for port, code in found.items() if code == 0}


def test_a_stranger_finds_the_gateway_alone_on_65535_ports(node: Node) -> None:
    found = node.scanned(STRANGER)
    assert found == {HTTPS: 0, LEASES: errno.ETIMEDOUT, **dict.fromkeys(UNIT_PORTS, errno.ETIMEDOUT)}


def test_the_nodes_of_the_unit_and_the_gateway_reach_what_they_use(node: Node) -> None:
    assert reached(node, PEER) == {*UNIT_PORTS, LEASES, HTTPS}
    assert reached(node, GATEWAY_NODE) == {*UNIT_PORTS, HTTPS}
    own = node.systemd.run(sys.executable, "-S", "-c", _SCAN, HEAD, HEAD, str(API), str(LEASES))
    assert json.loads(own.stdout) == {str(API): 0, str(LEASES): 0}


@pytest.mark.parametrize(
    ("node", "sources", "unit_is_open"),
    [
        ({"listen": "local"}, (STRANGER, GATEWAY_NODE), False),
        ({"listen": "management", "direct": [f"{STRANGER}/32"]}, (STRANGER,), True),
        ({"listen": "management", "direct": ["10.9.0.0/16"]}, (STRANGER,), False),
    ],
    indirect=["node"],
    ids=["on loopback", "direct", "direct for others"],
)
def test_the_rack_file_says_who_else_reaches_the_engine(
    node: Node, sources: tuple[str, ...], unit_is_open: bool
) -> None:
    for source in sources:
        assert reached(node, source) == {HTTPS, *(UNIT_PORTS if unit_is_open else ())}


def test_verify_sees_the_filter_in_the_kernel_and_misses_it_where_it_is_not(node: Node) -> None:
    machine: Any = SimpleNamespace(run=lambda command: _run_on_node(node, command))
    rack, here = node.locked.rack, node.locked.rack.nodes["n0"]
    verify.test_the_kernel_closes_each_rank_to_other_machines(here, machine, rack, CheckReporter([]))
    open_slice = content(desired.files(node.locked, "n0"), "sparkrack-one.slice").replace("IPAddressDeny=any\n", "")
    node.systemd.write("sparkrack-one.slice", open_slice)
    for words in (["daemon-reload"], ["restart", "sparkrack-one.slice", "container.service"]):
        done = node.systemd.run("systemctl", *words)
        assert done.returncode == 0, done.stderr
    node.systemd.wait_for(UNIT_PORTS)
    with pytest.raises(AssertionError, match=r"sparkrack-one\.slice is open to all addresses"):
        verify.test_the_kernel_closes_each_rank_to_other_machines(here, machine, rack, CheckReporter([]))
    node.systemd.write("sparkrack-one.slice", open_slice.replace("IPAddressAllow=", "#"))
    for words in (["daemon-reload"], ["restart", "sparkrack-one.slice", "container.service"]):
        assert node.systemd.run("systemctl", *words).returncode == 0
    node.systemd.wait_for(UNIT_PORTS)
    with pytest.raises(
        AssertionError, match=r"no program of the kernel judges the packets for sparkrack-one\.slice/cont"
    ):
        verify.test_the_kernel_closes_each_rank_to_other_machines(here, machine, rack, CheckReporter([]))


def _run_on_node(node: Node, command: str) -> SimpleNamespace:
    done = node.systemd.run("sh", "-c", command)
    return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)
