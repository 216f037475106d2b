"""What `sparkrack init` asks for since no machine reports it, and what it offers to declare besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.util.screen import Screen
from sparkrack.discovery.discovery_options import host_fault
from sparkrack.discovery.node_facts import NodeFacts
from sparkrack.discovery.node_sections import common_driver

NONE = "-"
TIME_SERVER = "ntp.ubuntu.com"
"""The server that DGX OS has from the factory (the fallback of Ubuntu's systemd-timesyncd), where none was read."""
_OFFER = "Also hold the driver, set time servers, record a black box and watch?"
Cables = dict[str, dict[int, str]]
"""Where the cable in each port of a node ends, as rack.yaml writes it, by node and port."""


def ask_nodes(screen: Screen, chosen: dict[str, str]) -> dict[str, str]:
    """Ask for nodes besides those that were chosen, one at a time, and return all; at least one."""
    while True:
        form = "as ADDRESS or NAME=ADDRESS"
        text = (
            screen.ask(f"another node, {form}; {NONE} for none", NONE)
            if chosen
            else screen.ask(f"the first node, {form}", "")
        ).strip()
        if chosen and text == NONE:
            return chosen
        name, _, address = text.rpartition("=")
        name = name or next(free for at in range(1, 99) if (free := f"spark{at}") not in chosen)
        if why := host_fault(name, address) or ("two nodes have the same name" if name in chosen else ""):
            screen.warn(why)
        else:
            chosen[name] = address


def ask_cables(screen: Screen, nodes: Sequence[str], cabled: Collection[str]) -> Cables:
    """Ask where cables between nodes end. `nodes`: by rank; `cabled`: those at which a cable was found to end."""
    if len(nodes) == 2 and not cabled:
        first, second = nodes
        here = _ask_port(screen, f"port of {first} that has the cable to {second}; 0 is next to the RJ45")
        return {first: {here: f"{second}/{_ask_port(screen, f'port of {second} that has it')}"}}
    found: Cables = {}
    for rank, name in enumerate(nodes):
        if name in cabled or len(nodes) < 2:
            continue
        question = f"the cable in port 0 of {name} ends at, as NODE/PORT; {NONE} for none"
        end = screen.ask(question, f"{nodes[(rank + 1) % len(nodes)]}/1").strip()
        while end != NONE and not _is_port(end, nodes, name):
            screen.warn(f"{end} is not the port of another node; write one like {nodes[rank - 1]}/1")
            end = screen.ask(question, f"{nodes[(rank + 1) % len(nodes)]}/1").strip()
        if end != NONE:
            found[name] = {0: end}
    return found


def _ask_port(screen: Screen, question: str) -> int:
    while (text := screen.ask(question, "1").strip()) not in ("0", "1"):
        screen.warn(f"{text} is not a port of a node; write 0 or 1")
    return int(text)


def _is_port(end: str, nodes: Sequence[str], own: str) -> bool:
    name, _, place = end.partition("/")
    return name in nodes and name != own and place in ("0", "1")


def offered_time(facts: Mapping[str, NodeFacts]) -> tuple[list[str], str]:
    """Return the time servers that most nodes have, and where they come from, in words. `facts`: of the nodes that were
    read, by rank."""
    read = {name: node.time_servers for name, node in facts.items() if node.time_servers}
    if not read:
        return [TIME_SERVER], "the default of DGX OS; no node's was read"
    ((servers, _),) = Counter(read.values()).most_common(1)
    same = [name for name, its_own in read.items() if its_own == servers]
    others = [name for name in read if name not in same]
    source = f"which {', '.join(same)} {'has' if len(same) == 1 else 'have'}"
    return list(servers), f"{source}; others: {', '.join(others)}" if others else source


def offer_sections(screen: Screen, nodes: Collection[str], facts: Mapping[str, NodeFacts]) -> dict[str, Any]:
    """Return the sections that the operator agrees to, with the values that the nodes report; none of them else."""
    driver, why = common_driver(nodes, facts)
    offered: dict[str, Any] = {"driver": driver or {"hold": True}}
    servers, source = offered_time(facts)
    screen.say("not in the file yet:", err=True)
    if driver:
        screen.say(f"  driver    {driver['version']} with kernel {driver['kernel']}, held against updates", err=True)
    else:
        screen.say("  driver    held as it is installed, against updates", err=True)
        screen.say(f"            no version is offered: {why}", err=True)
    screen.say(f"  time      from {', '.join(servers)}, {source}", err=True)
    screen.say("  blackbox  what a node that dies leaves behind, and a watchdog", err=True)
    screen.say("  watch     metrics and alerts, kept on a node", err=True)
    if not screen.confirm(_OFFER, default=True):
        return {}
    return {"time": {"ntp": servers}, **offered, "blackbox": {}, "watch": {}}
