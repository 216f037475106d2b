"""Asking nodes and switches what is really cabled to what. Nothing is changed on any of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from sparkrack.fleet import Leg, Port, Rack
from sparkrack.proof.machines import ssh_config
from sparkrack.proof.shell import RootShell, UnreachableError
from sparkrack.proof.told import UnknownError
from sparkrack.topology.picture import picked
from sparkrack.topology.said import NodeSaid, Seen, SwitchSaid, script, understood
from switch.ends import HEARD_SECONDS, whereabouts
from switch.look import Look

SECONDS = 30
"""How long a node may take to answer."""


def see(rack: Rack, limit: Collection[str] = ()) -> Seen:
    """What both ends of each cable say, one command for each node; who does not answer is told in its place.

    With `limit`, only the cables of these machines are asked about.
    """
    cables = picked(rack, limit)
    ports: dict[str, list[Port]] = {}
    for port in sorted({port for cable in cables for port in cable.ports}):
        ports.setdefault(port.node, []).append(port)
    with TemporaryDirectory(prefix="sparkrack-") as folder, ThreadPoolExecutor(max_workers=16) as pool:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        nodes = dict(zip(ports, pool.map(lambda node: _node(rack, node, ports[node], config), ports), strict=True))
    # After the nodes: what they just sent is what the switch knows their places by.
    switches = dict.fromkeys(cable.b.switch for cable in cables if isinstance(cable.b, Leg))
    return Seen(nodes, {name: _switch(rack, name, nodes) for name in switches})


def _node(rack: Rack, node: str, ports: list[Port], config: Path) -> NodeSaid | str:
    shell = RootShell(node, config, SECONDS)
    try:
        done = shell.run(script(rack, ports))
    except UnreachableError as gone:
        return f"cannot be asked: {gone.why}"
    finally:
        shell.close()
    if done.rc != 0:
        return f"cannot be asked: {done.stderr.strip() or f'exit {done.rc}'}"
    try:
        return understood(done.stdout, ports)
    except ValueError as fault:
        return f"cannot be understood: {fault}"


def _switch(rack: Rack, name: str, nodes: Mapping[str, NodeSaid | str]) -> SwitchSaid | str:
    look = Look(rack, rack.switches[name])
    try:
        links, ethernet, hosts = look.links, look.ethernet, look.hosts()
        ends = [
            end
            for said in nodes.values()
            if isinstance(said, NodeSaid)
            for half, end in said.ends.items()
            if end.link == "yes" and _at(rack, Port(half.node, half.port), name)
        ]
        until = time.monotonic() + HEARD_SECONDS
        while "" in whereabouts(ends, hosts) and time.monotonic() < until:
            time.sleep(1)
            hosts = look.hosts()
    except UnknownError as fault:
        return str(fault)
    finally:
        look.close()
    return SwitchSaid(links, ethernet, hosts)


def _at(rack: Rack, port: Port, switch: str) -> bool:
    leg = rack.cabling.leg_of(port)
    return leg is not None and leg.switch == switch
