"""ssh client configuration of a node for the others: their host keys, and the login settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.model import Node, Rack
from core.model.fields import SSH_PORT
from core.util.managed_file import header
from roles.access.desired import KEY, Peer, called, public_key
from roles.access.node_key import NAME

HOSTS = "/etc/ssh/sparkrack_known_hosts"
CLIENT = "/etc/ssh/ssh_config.d/50-sparkrack.conf"
MAIN = "/etc/ssh/ssh_config"


def known_hosts(rack: Rack, before: bytes, peers: Mapping[str, Peer | None]) -> bytes:
    """The host keys of every node under all that it answers to. One that is not known in this run keeps the keys that
    the node's own file has for it."""
    lines = [header(rack.rack)]
    for name, node in rack.nodes.items():
        peer = peers.get(name)
        keys = peer.host_keys if peer is not None else pinned(rack, node, before)
        lines += [f"{_host_names(rack, node)} {key}" for key in keys]
    return ("\n".join(lines) + "\n").encode()


def pinned(rack: Rack, node: Node, content: bytes) -> tuple[str, ...]:
    """The host keys that a file of ours has for a node."""
    found = []
    for line in content.decode("utf-8", "replace").splitlines():
        hosts, _, key = line.partition(" ")
        if hosts.split(",")[0] == _host_name(rack, node.name) and KEY.fullmatch(key):
            found.append(public_key(key))
    return tuple(sorted(set(found)))


def _host_names(rack: Rack, node: Node) -> str:
    return ",".join(_host_name(rack, name) for name in called(rack, node))


def _host_name(rack: Rack, name: str) -> str:
    return name if rack.access.port == SSH_PORT else f"[{name}]:{rack.access.port}"


# claim: access.discover-sparks
def settings(rack: Rack) -> dict[str, str]:
    """Return the ssh settings for a node of the rack, as in its configuration."""
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
    """Return the drop-in of ssh, which applies to the nodes of the rack only."""
    names = dict.fromkeys(name for node in rack.nodes.values() for name in called(rack, node))
    lines = [
        header(rack.rack),
        f"Host {' '.join(names)}",
    ]
    return "\n".join([*lines, *(f"    {key} {value}" for key, value in settings(rack).items()), ""]).encode()


def faults(rack: Rack, shown: str) -> list[str]:
    """Return differences in the ssh settings for one of our hosts, from the output of `ssh -G`: another file is read
    before ours, or ours is not read. Only meaningful if our file exists.
    """
    reported: dict[str, list[str]] = {}
    for line in shown.splitlines():
        key, _, value = line.partition(" ")
        reported.setdefault(key, []).append(value)
    # ssh shows `StrictHostKeyChecking yes` as true, and other spellings as they are.
    spelled = {"true": "yes", "false": "no"}
    return [
        f"ssh takes {key} {_shown_values(reported.get(key.lower(), []))} for the nodes, not {value}: {CLIENT} is not "
        f"read, or after another file that says so; see {MAIN} and the drop-ins before it"
        for key, value in settings(rack).items()
        if value not in [spelled.get(word, word) for word in reported.get(key.lower(), [])][:1]
    ]


def _shown_values(values: list[str]) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", values[0])[:80] if values else "nothing"


def proof(node: Node) -> str:
    """Return a script that succeeds when ssh reads our drop-in for a node, and else prints the effective settings."""
    wanted = f"globalknownhostsfile {HOSTS}"
    return (
        f"ssh -G -F {MAIN} -- {node.name} | grep -qxF {wanted!r} || "
        f"{{ echo 'ssh does not read {CLIENT}: {MAIN} does not include its folder, or another file is read before it'"
        " >&2; exit 1; }"
    )
