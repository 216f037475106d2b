"""Whom a node lets in: the lines of authorized_keys that are ours, between those of others. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from roles.access.state import Peer, addresses, public_key
from sparkrack.fleet import Node, Rack

OPTIONS = "no-agent-forwarding,no-X11-forwarding"


def mark(rack: Rack, node: str) -> str:
    """The comment by which a line is known as ours."""
    return f"sparkrack:{rack.rack}:{node}"


def line(rack: Rack, node: Node, key: str) -> bytes:
    """What lets one node in, only from its own addresses."""
    sources = ",".join(map(str, addresses(rack, node)))
    return f'from="{sources}",{OPTIONS} {key} {mark(rack, node.name)}\n'.encode()


def authorized(rack: Rack, node: Node, before: bytes, peers: Mapping[str, Peer | None], operator: str | None) -> bytes:
    """The same file with a line for each other node of the rack and the operator's key; every other byte is kept.

    `peers`: by name; None for one that is not known in this run, whose line stays as it is. `operator`: the whole
    public key, or None when it is not known.
    """
    wanted = {
        name: line(rack, rack.nodes[name], peer.key)
        for name, peer in peers.items()
        if name != node.name and peer is not None and peer.key is not None
    }
    kept = [name for name in rack.nodes if name not in wanted and name != node.name]
    lines: list[bytes] = []
    done: set[str] = set()
    for old in before.splitlines(keepends=True):
        name = _named(rack, old)
        if name is None:
            lines.append(old)
        elif name not in done and (name in wanted or name in kept):
            done.add(name)
            lines.append(old if name in kept else wanted[name])
    missing = [text for name, text in wanted.items() if name not in done]
    if operator is not None and public_key(operator).split(" ")[1] not in _blobs(before):
        missing.insert(0, f"{operator.strip()}\n".encode())
    if missing and lines and not lines[-1].endswith(b"\n"):
        lines.append(b"\n")
    return b"".join([*lines, *missing])


def _named(rack: Rack, text: bytes) -> str | None:
    """The node that a line of ours lets in; None for a line of others."""
    words = text.split()
    start = mark(rack, "").encode()
    if not words or words[0].startswith(b"#") or not words[-1].startswith(start):
        return None
    return words[-1].removeprefix(start).decode("utf-8", "replace")


def _blobs(content: bytes) -> set[str]:
    """Every word of the lines that count; a key is one of them, wherever its options end."""
    lines = [text for text in content.decode("utf-8", "replace").splitlines() if not text.lstrip().startswith("#")]
    return {word for text in lines for word in text.split()}


def changes(rack: Rack, before: bytes, after: bytes) -> list[str]:
    """What differs, by the names of the nodes."""
    old, new = _ours(rack, before), _ours(rack, after)
    said = [f"let {name} in" for name in new if name not in old]
    said += [
        f"let {name} in with its present key and addresses" for name in old if new.get(name, old[name]) != old[name]
    ]
    said += [f"let {name} in no longer" for name in old if name not in new]
    mine = [line for line in after.splitlines() if _named(rack, line) is None and line not in before.splitlines()]
    return [*said, *(["let the operator's key in"] if mine else [])] or ["remove a line that is there twice"]


def _ours(rack: Rack, content: bytes) -> dict[str, bytes]:
    named = ((_named(rack, text), text) for text in content.splitlines())
    return {name: text for name, text in named if name is not None}
