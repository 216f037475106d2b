"""What the bench wants of N nodes: a rack file, and what others need to bring nodes to the same state. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from roles.access import authorized, known, names
from roles.access.state import addresses, called
from roles.memory import gate
from roles.memory import state as memory
from roles.rdma import environment
from roles.rdma import state as rdma
from sparkrack.fleet import Node, Rack

USER = "ops"
FIRST = IPv4Address("10.77.0.11")
PREFIX = 16
GATEWAY = "10.77.255.254"
"""The operator's own address."""
INTERFACE = "mgmt0"
LEGS = [f"{cage}-{lane}" for cage in ("qsfp56-dd-1", "qsfp56-dd-2") for lane in (1, 3, 5, 7)]
KEY = "/home/ops/.ssh/id_sparkrack"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
AUTHORIZED = "/home/ops/.ssh/authorized_keys"


def rack_file(count: int, min_free_kbytes: int, overcommit_memory: int) -> str:
    """A rack of `count` nodes, eight behind each CRS812. No switch is asked for anything: the bench is about nodes.

    The two settings of the kernel are those that the machine has. They are no namespace's own, so nothing may differ.
    """
    nodes = "\n".join(
        f"  spark{number + 1}: {{address: {FIRST + number}, vendor: nvidia, "
        f"ports: {{1: crs{number // len(LEGS) + 1}/{LEGS[number % len(LEGS)]}}}}}"
        for number in range(count)
    )
    switches = "\n".join(_switch(number, count) for number in range(-(-count // len(LEGS))))
    return f"""\
rack: bench
access: {{user: {USER}, key: id_ed25519, known_hosts: known_hosts, hardening: false}}
nodes:
{nodes}
switches:
{switches}
fabric:
  mtu: 9000
  subnets: [192.168.100.0/24, 192.168.101.0/24]
memory: {{min_free_kbytes: {min_free_kbytes}, overcommit_memory: {overcommit_memory}}}
"""


def _switch(number: int, count: int) -> str:
    here = LEGS[: count - number * len(LEGS)]
    cages = [cage for cage in ("qsfp56-dd-1", "qsfp56-dd-2") if any(leg.startswith(cage) for leg in here)]
    split = ", ".join(f"{cage}: {{split: 4x100G}}" for cage in cages)
    return (
        f"  crs{number + 1}: {{address: 10.78.0.{number + 1}, tls: {{sha256: '{number:064x}'}}, user: sparkrack, "
        f"password: {{env: BENCH_SWITCH}}, model: CRS812-8DS-2DQ-2DDQ, cages: {{{split}}}}}"
    )


def files(rack: Rack, node: Node) -> list[dict[str, str]]:
    """The files that follow from the rack file alone, each with path, mode and content: a person would have them as
    templates. Those that hold what nodes say of themselves are not among them."""
    ours = [
        *environment.files(rack, node, INTERFACE, {}),
        rdma.limits(rack),
        rdma.manager(rack),
        rdma.arp_dropin(rack, node),
    ]
    program = gate.script(rack)
    return [
        *({"path": file.path, "mode": f"0{file.mode}", "content": file.content.decode()} for file in ours),
        {"path": memory.DROPIN, "mode": "0644", "content": memory.dropin(rack).decode()},
        {"path": program.path, "mode": f"0{program.mode}", "content": program.content.decode()},
        {"path": known.CLIENT, "mode": "0644", "content": known.client(rack).decode()},
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
    """What an inventory of another tool says of one node. `operator`: the public key that is let in from the start."""
    start, end = names.block(rack, node, [node.name]).decode().splitlines()[:: len(rack.nodes) + 1]
    return {
        "address": str(node.address),
        "called": called(rack, node),
        "sources": [str(one) for one in addresses(rack, node)],
        "options": authorized.OPTIONS,
        "mark": authorized.mark(rack, node.name),
        "operator": operator,
        "hosts_begin": start,
        "hosts_end": end,
        "known_hosts": known.HOSTS,
        "off": rdma.OFF.decode(),
        "files": [{key: file[key] for key in ("path", "mode")} for file in files(rack, node)],
        "folders": folders(files(rack, node)),
        "settings": settings(rack, node),
    }


def managed(rack: Rack, node: Node) -> list[str]:
    """Every path that the desired state is about, whoever brings it there."""
    ours = [file["path"] for file in files(rack, node)]
    return sorted(
        {*ours, "/home/ops/.ssh", KEY, f"{KEY}.pub", AUTHORIZED, known.HOSTS, names.HOSTS, rdma.NCCL_CONF}
        | set(folders(files(rack, node)))
    )
