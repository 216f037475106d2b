"""Observe nodes and switches to find the actual cables. Nothing is changed on any of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from core.model import Leg, Port, Rack
from core.probes.protocol import UnknownError
from core.ssh.node_shells import open_shells
from core.ssh.parsed_answer import parsed_answer
from core.ssh.root_shell import RootShell
from core.util.progress import NO_PROGRESS, ProgressObserver
from sparkrack.topology.build import picked
from sparkrack.topology.observed import NodeObservation, Observations, SwitchObservation, parse_observation
from switch.link_ends import HEARD_SECONDS, mac_locations, node_end_script
from switch.verify_client import SwitchChecks

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""


def collect_observations(
    rack: Rack,
    limit: Collection[str] = (),
    excluded: Collection[str] = (),
    progress: ProgressObserver = NO_PROGRESS,
) -> Observations:
    """Return the observations of both ends of each cable, one command for each node; a host without an answer has its
    reason.

    With `limit`, only the cables of these hosts are observed. Hosts in `excluded` are not contacted.
    """
    cables = picked(rack, limit)
    ports: dict[str, list[Port]] = {}
    for port in sorted({port for cable in cables for port in cable.ports}):
        if port.node not in excluded:
            ports.setdefault(port.node, []).append(port)
    progress.phase("read the links of the nodes", ports)
    with open_shells(rack, ports, ANSWER_SECONDS) as shells, ThreadPoolExecutor(max_workers=16) as pool:

        def node(name: str) -> NodeObservation | str:
            found = _observe_node(rack, shells[name], ports[name])
            progress.finish(name, "answered" if isinstance(found, NodeObservation) else "no answer")
            return found

        nodes = dict(zip(ports, pool.map(node, ports), strict=True))
    # After the nodes: from the frames that they just sent the switch learned their legs.
    switches = dict.fromkeys(
        cable.b.switch for cable in cables if isinstance(cable.b, Leg) and cable.b.switch not in excluded
    )
    progress.phase("read the switch", switches)
    return Observations(nodes, {name: _observe_switch(rack, name, nodes) for name in switches})


def _observe_node(rack: Rack, shell: RootShell, ports: list[Port]) -> NodeObservation | str:
    return parsed_answer(shell.run, node_end_script(rack, ports), lambda output: parse_observation(output, ports))


def _observe_switch(rack: Rack, name: str, nodes: Mapping[str, NodeObservation | str]) -> SwitchObservation | str:
    look = SwitchChecks(rack, rack.switches[name])
    try:
        links, ethernet = look.links, look.ethernet
        reported = [observed.ends for observed in nodes.values() if isinstance(observed, NodeObservation)]
        every = [end for ends in reported for end in ends.values()]
        ends = [
            end
            for observed in reported
            for half, end in observed.items()
            if end.link == "yes" and _is_at_switch(rack, Port(half.node, half.port), name)
        ]
        hosts = look.hosts(every)
        until = time.monotonic() + HEARD_SECONDS
        while "" in mac_locations(ends, hosts) and time.monotonic() < until:
            time.sleep(1)
            hosts = look.hosts(every)
    except UnknownError as fault:
        return str(fault)
    finally:
        look.close()
    return SwitchObservation(links, ethernet, hosts)


def _is_at_switch(rack: Rack, port: Port, switch: str) -> bool:
    leg = rack.cabling.leg_of(port)
    return leg is not None and leg.switch == switch
