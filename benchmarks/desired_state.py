"""The desired state of N nodes: a rack file, and the data with which other tools reach the same state. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from core.hardware.cage_kinds import QSFP56_DD, lane_interface
from core.hardware.crs812 import CRS812
from core.model import Node, Rack
from roles.access import authorized_keys, etc_hosts, known_hosts
from roles.access.desired import addresses, called
from roles.memory import desired as memory
from roles.memory import memory_gate
from roles.rdma import desired as rdma
from roles.rdma import environment

USER = "ops"
FIRST = IPv4Address("10.77.0.11")
PREFIX = 16
GATEWAY = "10.77.255.254"
"""The operator's own address."""
INTERFACE = "mgmt0"
SPLIT = "4x100G"
CAGES = [cage for cage, kind in CRS812.cages.items() if kind is QSFP56_DD]
LEGS = [lane_interface(cage, lane) for cage in CAGES for lane in QSFP56_DD.breakouts[SPLIT].first_lanes]
KEY = "/home/ops/.ssh/id_sparkrack"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
AUTHORIZED = "/home/ops/.ssh/authorized_keys"


def rack_file(count: int, min_free_kbytes: int, overcommit_memory: int) -> str:
    """A rack of `count` nodes, eight behind each CRS812. No switch is contacted: the benchmark is about nodes.

    The two settings of the kernel have the machine's values. They do not belong to a namespace, so they must not
    differ.
    """
    nodes = "\n".join(
        f"  spark{number + 1}: {{address: {FIRST + number}, vendor: nvidia, "
        f"ports: {{1: crs{number // len(LEGS) + 1}/{LEGS[number % len(LEGS)]}}}}}"
        for number in range(count)
    )
    links = "\n  switch_links: by-hand" if count > len(LEGS) else ""
    switches = "\n".join(_switch_entry(number, count) for number in range(-(-count // len(LEGS))))
    return f"""\
rack: bench
access: {{user: {USER}, key: id_ed25519, known_hosts: known_hosts, hardening: false}}
nodes:
{nodes}
switches:
{switches}
fabric:
  mtu: 9000
  subnets: [192.168.100.0/24, 192.168.101.0/24]{links}
memory: {{min_free_kbytes: {min_free_kbytes}, overcommit_memory: {overcommit_memory}}}
"""


def _switch_entry(number: int, count: int) -> str:
    here = LEGS[: count - number * len(LEGS)]
    cages = [cage for cage in CAGES if any(leg.startswith(cage) for leg in here)]
    split = ", ".join(f"{cage}: {{split: {SPLIT}}}" for cage in cages)
    return (
        f"  crs{number + 1}: {{address: 10.78.0.{number + 1}, tls: {{sha256: '{number:064x}'}}, user: sparkrack, "
        f"password: {{env: BENCH_SWITCH}}, model: {CRS812.board}, cages: {{{split}}}}}"
    )


def files(rack: Rack, node: Node) -> list[dict[str, str]]:
    """Return the files that follow from the rack file alone, each with path, mode and content: the usual form would be
    templates. Files with data of the nodes themselves are not among them.
    """
    ours = [
        *environment.files(rack, node, INTERFACE, {}),
        rdma.limits(rack),
        rdma.manager(rack),
        rdma.arp_dropin(rack, node),
    ]
    program = memory_gate.script(rack)
    return [
        *({"path": file.path, "mode": f"0{file.mode}", "content": file.content.decode()} for file in ours),
        {"path": memory.DROPIN, "mode": "0644", "content": memory.dropin(rack).decode()},
        {"path": program.path, "mode": f"0{program.mode}", "content": program.content.decode()},
        {"path": known_hosts.CLIENT, "mode": "0644", "content": known_hosts.client(rack).decode()},
    ]


def folders(listed: list[dict[str, str]]) -> list[str]:
    """The folders of these files that a node does not have from the factory."""
    found = {file["path"].rpartition("/")[0] for file in listed}
    return sorted(found & {"/etc/sparkrack", "/usr/local/lib/sparkrack", "/etc/systemd/system.conf.d"})


def settings(rack: Rack, node: Node) -> dict[str, str]:
    """The kernel's settings that a target can have: it has no fabric interfaces."""
    arp = {key: value for key, value in rdma.sysctls(rack, node).items() if key.split(".")[3] in ("all", "default")}
    return {**arp, **{key: str(value) for key, value in memory.sysctls(rack).items()}}


def variables(rack: Rack, node: Node, operator: str) -> dict[str, Any]:
    """Return the variables of one node for another tool's inventory. `operator`: the public key that is authorized from
    the start.
    """
    start, end = etc_hosts.block(rack, node, [node.name]).decode().splitlines()[:: len(rack.nodes) + 1]
    return {
        "address": str(node.address),
        "called": called(rack, node),
        "sources": [str(one) for one in addresses(rack, node)],
        "options": authorized_keys.OPTIONS,
        "mark": authorized_keys.mark(rack, node.name),
        "operator": operator,
        "hosts_begin": start,
        "hosts_end": end,
        "known_hosts": known_hosts.HOSTS,
        "off": rdma.OFF.decode(),
        "files": [{key: file[key] for key in ("path", "mode")} for file in files(rack, node)],
        "folders": folders(files(rack, node)),
        "settings": settings(rack, node),
    }


def managed(rack: Rack, node: Node) -> list[str]:
    """Return every path of the desired state, for all tools."""
    ours = [file["path"] for file in files(rack, node)]
    return sorted(
        {*ours, "/home/ops/.ssh", KEY, f"{KEY}.pub", AUTHORIZED, known_hosts.HOSTS, etc_hosts.HOSTS, rdma.NCCL_CONF}
        | set(folders(files(rack, node)))
    )
