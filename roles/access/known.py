"""What a node knows of the others as an ssh client: their host keys, and how to log in. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from roles.access.pair import NAME
from roles.access.state import KEY, Peer, called, public_key
from sparkrack.fleet import Node, Rack

HOSTS = "/etc/ssh/sparkrack_known_hosts"
CLIENT = "/etc/ssh/ssh_config.d/50-sparkrack.conf"
MAIN = "/etc/ssh/ssh_config"
PORT = 22
"""The port at which known_hosts has a host by its bare name."""


def known_hosts(rack: Rack, before: bytes, peers: Mapping[str, Peer | None]) -> bytes:
    """The host keys of every node under all that it answers to. One that is not known in this run keeps the keys that
    the node's own file has for it."""
    lines = [f"# Written by sparkrack for the rack {rack.rack}; a change here is overwritten."]
    for name, node in rack.nodes.items():
        peer = peers.get(name)
        keys = peer.host_keys if peer is not None else pinned(rack, node, before)
        lines += [f"{_hosts(rack, node)} {key}" for key in keys]
    return ("\n".join(lines) + "\n").encode()


def pinned(rack: Rack, node: Node, content: bytes) -> tuple[str, ...]:
    """The host keys that a file of ours has for a node."""
    found = []
    for line in content.decode("utf-8", "replace").splitlines():
        hosts, _, key = line.partition(" ")
        if hosts.split(",")[0] == _host(rack, node.name) and KEY.fullmatch(key):
            found.append(public_key(key))
    return tuple(sorted(set(found)))


def _hosts(rack: Rack, node: Node) -> str:
    return ",".join(_host(rack, name) for name in called(rack, node))


def _host(rack: Rack, name: str) -> str:
    return name if rack.access.port == PORT else f"[{name}]:{rack.access.port}"


def settings(rack: Rack) -> dict[str, str]:
    """How ssh reaches a node of the rack, as its configuration has it."""
    return {
        "User": rack.access.user,
        "Port": str(rack.access.port),
        "IdentityFile": f"~/.ssh/{NAME}",
        "IdentitiesOnly": "yes",
        "GlobalKnownHostsFile": HOSTS,
        "UserKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
    }


def client(rack: Rack) -> bytes:
    """The drop-in of ssh: it is about the nodes of the rack and nobody else."""
    names = dict.fromkeys(name for node in rack.nodes.values() for name in called(rack, node))
    lines = [
        f"# Written by sparkrack for the rack {rack.rack}; a change here is overwritten.",
        f"Host {' '.join(names)}",
    ]
    return "\n".join([*lines, *(f"    {key} {value}" for key, value in settings(rack).items()), ""]).encode()


def faults(rack: Rack, shown: str) -> list[str]:
    """What ssh would do otherwise with one of our hosts, from what `ssh -G` shows: another file is read before ours,
    or ours is not read. To be asked only where our file is, since without it nothing is shown."""
    said: dict[str, list[str]] = {}
    for line in shown.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key, []).append(value)
    # ssh shows `StrictHostKeyChecking yes` as true, and other spellings as they are.
    spelled = {"true": "yes", "false": "no"}
    return [
        f"ssh takes {key} {_shown(said.get(key.lower(), []))} for the nodes, not {value}: {CLIENT} is not read, or "
        f"after another file that says so; see {MAIN} and the drop-ins before it"
        for key, value in settings(rack).items()
        if value not in [spelled.get(word, word) for word in said.get(key.lower(), [])][:1]
    ]


def _shown(values: list[str]) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", values[0])[:80] if values else "nothing"


def proof(node: Node) -> str:
    """A script that succeeds when ssh reads our drop-in for a node, and else says what it takes instead."""
    wanted = f"globalknownhostsfile {HOSTS}"
    return (
        f"ssh -G -F {MAIN} -- {node.name} | grep -qxF {wanted!r} || "
        f"{{ echo 'ssh does not read {CLIENT}: {MAIN} does not include its folder, or another file is read before it'"
        " >&2; exit 1; }"
    )
