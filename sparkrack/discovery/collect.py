"""Read the facts of nodes and switches. Nothing is changed on any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pydantic import SecretStr

from core.model import Access
from core.probes.protocol import parse_commands
from core.routeros.api import ApiSession
from core.routeros.errors import SentenceError, UnreadableError
from core.routeros.menus import BRIDGE, BRIDGE_HOST, BRIDGE_PORT, ETHERNET, IDENTITY, MENUS, Row, place_of
from core.routeros.reading import Ask, SwitchReading, read_switch
from core.routeros.values import visible_row
from core.ssh.node_shells import open_shells_at
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import ProgressObserver
from sparkrack.discovery.node_facts import NodeFacts, parse_node_facts, with_neighbours
from sparkrack.discovery.probe_script import neighbour_script, script
from sparkrack.discovery.switch_facts import Neighbour, SwitchFacts, factory_names, neighbours
from switch.leg_health import monitor
from switch.link_ends import HEARD_SECONDS

NODE_SECONDS = 60
"""Seconds for the answers of a node: its tools have limits of their own."""
NEEDED = (ETHERNET, BRIDGE, BRIDGE_PORT, BRIDGE_HOST, IDENTITY)
"""What every switch has; the other menus it may lack."""
_NEIGHBOURS = ("/ip/neighbor/print", "=.proplist=interface,mac-address,identity")


NodeShell = Callable[[str], bytes]
"""Runs a script as root on a node, and returns its output. Raises UnreachableError."""


@contextmanager
def key_shells(access: Access, addresses: Mapping[str, str]) -> Iterator[dict[str, NodeShell]]:
    """A shell by the operator's key on each of these nodes, closed after the block."""
    with open_shells_at(access, addresses, NODE_SECONDS) as shells:
        yield {name: partial(_run_script, shell) for name, shell in shells.items()}


def _run_script(shell: RootShell, script: str) -> bytes:
    return bytes(shell.run(script).stdout_bytes)


def read_nodes(shells: Mapping[str, NodeShell], progress: ProgressObserver) -> dict[str, NodeFacts | str]:
    """Return the facts of each node, or why there are none; all at the same time."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        progress.phase("read the nodes", shells)

        def facts_of(name: str) -> NodeFacts | str:
            facts = _read_node(name, shells[name])
            progress.finish(name, "read" if isinstance(facts, NodeFacts) else "not read")
            return facts

        return dict(zip(shells, pool.map(facts_of, shells), strict=True))


def read_neighbours(
    found: Mapping[str, NodeFacts | str], shells: Mapping[str, NodeShell], progress: ProgressObserver
) -> dict[str, NodeFacts | str]:
    """Return the facts of each node with its neighbours after all nodes have sent frames."""
    read = {name: facts for name, facts in found.items() if isinstance(facts, NodeFacts)}
    progress.phase("read the neighbours of the nodes", read)
    with ThreadPoolExecutor(max_workers=16) as pool:
        after = pool.map(lambda facts: _read_neighbours(facts, shells[facts.name], tuple(read.values())), read.values())
        return {**found, **dict(zip(read, after, strict=True))}


def _read_node(name: str, shell: NodeShell) -> NodeFacts | str:
    try:
        return parse_node_facts(name, parse_commands(shell(script()).decode(errors="backslashreplace")))
    except UnreachableError as gone:
        return gone.why
    except ValueError as fault:
        return str(fault)
    except OSError as fault:
        return f"ssh: {fault.strerror or fault}"


def _read_neighbours(facts: NodeFacts, shell: NodeShell, nodes: tuple[NodeFacts, ...]) -> NodeFacts:
    try:
        output = shell(neighbour_script(facts, nodes))
    except UnreachableError:
        return facts
    return with_neighbours(facts, output.decode(errors="backslashreplace"))


@dataclass(frozen=True)
class Endpoint:
    """How a switch is reached. `tls`: the fingerprint of its certificate, None for the plain API."""

    address: str
    port: int
    tls: str | None
    user: str


def switch(name: str, way: Endpoint, password: SecretStr, expected: Mapping[str, bool]) -> SwitchFacts:
    """Return the facts of a switch. `expected`: the nodes' MAC addresses, and whether the switch should know each.

    Raises SwitchError or UnreadableError.
    """
    with ApiSession(way.address, way.port, tls=way.tls, user=way.user, password=password) as session:
        return described(name, lambda sentence: [visible_row(row) for row in session.talk(*sentence)], expected)


def described(
    name: str, ask: Ask, expected: Mapping[str, bool], sleep: Callable[[float], None] = time.sleep
) -> SwitchFacts:
    """Return the facts of a switch by way of `ask`, which sends one sentence."""
    reading = read_switch(ask, MENUS, [menu for menu in MENUS if menu not in NEEDED])
    if ETHERNET.path not in reading.tables:
        raise UnreadableError("its RouterOS is too old for this project, so nothing else was read")
    names = factory_names(reading)
    hosts = _learned_hosts(ask, names, expected)
    until = time.monotonic() + HEARD_SECONDS
    # An address that was just learned is listed later.
    while not {mac for mac, up in expected.items() if up} <= set(hosts) and time.monotonic() < until:
        sleep(1)
        hosts = _learned_hosts(ask, names, expected)
    facts = SwitchFacts(name, reading, hosts, _list_neighbours(ask, names))
    return replace(facts, monitor=_read_monitor(ask, reading, hosts))


def _learned_hosts(ask: Ask, names: Mapping[str, str], macs: Iterable[str]) -> dict[str, str]:
    return {
        row.get("mac-address", "").lower(): names.get(row.get("on-interface", ""), row.get("on-interface", ""))
        for mac in macs
        for row in ask(place_of(mac))
    }


def _list_neighbours(ask: Ask, names: Mapping[str, str]) -> tuple[Neighbour, ...]:
    try:
        return neighbours(ask(_NEIGHBOURS), names)
    except SentenceError:
        return ()


def _read_monitor(ask: Ask, reading: SwitchReading, hosts: Mapping[str, str]) -> dict[str, Row]:
    ids = {row[".id"]: name for name, row in reading.ethernet.items() if name in hosts.values() and ".id" in row}
    if not ids:
        return {}
    names = factory_names(reading)
    return {names.get(row.get("name", ""), ""): row for row in ask(monitor(ids))}
