"""Asking nodes and switches to describe themselves. Nothing is changed on any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr

from sparkrack.discovery.asking import script, speaking
from sparkrack.discovery.node import NodeFacts, hearing, understood
from sparkrack.discovery.switch import Neighbour, SwitchFacts, factory_names, neighbours
from sparkrack.fleet import Access
from sparkrack.proof.machines import configured
from sparkrack.proof.shell import RootShell, UnreachableError
from sparkrack.status.question import answers
from switch.api import Session
from switch.ends import HEARD_SECONDS
from switch.errors import SentenceError, UnreadableError
from switch.legs import monitor
from switch.menus import BRIDGE, BRIDGE_HOST, BRIDGE_PORT, ETHERNET, IDENTITY, MENUS, Row
from switch.reading import Ask, Reading, read
from switch.values import visible_row

NODE_SECONDS = 60
"""How long a node may take for its answers: its tools have limits of their own."""
NEEDED = (ETHERNET, BRIDGE, BRIDGE_PORT, BRIDGE_HOST, IDENTITY)
"""What every switch has; the other menus it may lack."""
_NEIGHBOURS = ("/ip/neighbor/print", "=.proplist=interface,mac-address,identity")


def nodes(access: Access, addresses: Mapping[str, str]) -> dict[str, NodeFacts | str]:
    """What each node says of itself after all have spoken, or why it says nothing; all at the same time."""
    with TemporaryDirectory(prefix="sparkrack-") as folder, ThreadPoolExecutor(max_workers=16) as pool:
        config = Path(folder) / "ssh_config"
        config.write_text(configured(access, addresses), errors="surrogateescape")
        shells = {name: RootShell(name, config, NODE_SECONDS) for name in addresses}
        try:
            found = dict(zip(shells, pool.map(lambda name: _first(name, shells[name]), shells), strict=True))
            there = {name: facts for name, facts in found.items() if isinstance(facts, NodeFacts)}
            heard = pool.map(lambda facts: _second(facts, shells[facts.name], tuple(there.values())), there.values())
            return {**found, **dict(zip(there, heard, strict=True))}
        finally:
            for shell in shells.values():
                shell.close()


def _first(name: str, shell: RootShell) -> NodeFacts | str:
    try:
        done = shell.run(script())
        return understood(name, answers(bytes(done.stdout_bytes).decode(errors="backslashreplace")))
    except UnreachableError as gone:
        return gone.why
    except ValueError as fault:
        return str(fault)
    except OSError as fault:
        return f"ssh: {fault.strerror or fault}"


def _second(facts: NodeFacts, shell: RootShell, everybody: tuple[NodeFacts, ...]) -> NodeFacts:
    try:
        done = shell.run(speaking(facts, everybody))
    except UnreachableError:
        return facts
    return hearing(facts, str(done.stdout))


@dataclass(frozen=True)
class Way:
    """How a switch is reached. `tls`: the fingerprint of its certificate, None for the plain API."""

    address: str
    port: int
    tls: str | None
    user: str


def switch(name: str, way: Way, password: SecretStr, expected: Mapping[str, bool]) -> SwitchFacts:
    """What a switch says of itself. `expected`: the nodes' MAC addresses, and whether it should hear each by now.

    Raises SwitchError or UnreadableError.
    """
    with Session(way.address, way.port, tls=way.tls, user=way.user, password=password) as session:
        return described(name, lambda sentence: [visible_row(row) for row in session.talk(*sentence)], expected)


def described(
    name: str, ask: Ask, expected: Mapping[str, bool], sleep: Callable[[float], None] = time.sleep
) -> SwitchFacts:
    """The same by way of `ask`, which sends one sentence."""
    reading = read(ask, MENUS, [menu for menu in MENUS if menu not in NEEDED])
    if ETHERNET.path not in reading.tables:
        raise UnreadableError("its RouterOS is too old for this project, so nothing else was read")
    names = factory_names(reading)
    hosts = _hosts(ask, names)
    until = time.monotonic() + HEARD_SECONDS
    # An address that was just heard takes its time to be listed.
    while not {mac for mac, up in expected.items() if up} <= set(hosts) and time.monotonic() < until:
        sleep(1)
        hosts = _hosts(ask, names)
    hosts = {mac: place for mac, place in hosts.items() if mac in expected}
    facts = SwitchFacts(name, reading, hosts, _neighbours(ask, names))
    return replace(facts, monitor=_monitor(ask, reading, hosts))


def _hosts(ask: Ask, names: Mapping[str, str]) -> dict[str, str]:
    rows = ask(BRIDGE_HOST.sentence())
    return {
        row.get("mac-address", "").lower(): names.get(row.get("on-interface", ""), row.get("on-interface", ""))
        for row in rows
    }


def _neighbours(ask: Ask, names: Mapping[str, str]) -> tuple[Neighbour, ...]:
    try:
        return neighbours(ask(_NEIGHBOURS), names)
    except SentenceError:
        return ()


def _monitor(ask: Ask, reading: Reading, hosts: Mapping[str, str]) -> dict[str, Row]:
    ids = {row[".id"]: name for name, row in reading.ethernet.items() if name in hosts.values() and ".id" in row}
    if not ids:
        return {}
    names = factory_names(reading)
    return {names.get(row.get("name", ""), ""): row for row in ask(monitor(ids))}
