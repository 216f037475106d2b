"""Our lines in authorized_keys; other lines are kept byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.model import Node, Rack
from core.util.event import Action, Event, acted
from roles.access.desired import Peer, addresses, public_key

OPTIONS = "no-agent-forwarding,no-X11-forwarding"


def mark(rack: Rack, node: str) -> str:
    """The comment by which a line is known as ours."""
    return f"sparkrack:{rack.rack}:{node}"


def line(rack: Rack, node: Node, key: str) -> bytes:
    """Return the line that allows one node to log in, only from its own addresses."""
    sources = ",".join(map(str, addresses(rack, node)))
    return f'from="{sources}",{OPTIONS} {key} {mark(rack, node.name)}\n'.encode()


def authorized(rack: Rack, before: bytes, peers: Mapping[str, Peer | None], operator: str | None) -> bytes:
    """The same file with a line for each node of the rack, itself included, and the operator's key; every other byte is
    kept.

    `peers`: by name; None for one that is not known in this run, whose line stays as it is. `operator`: the whole
    public key, or None when it is not known.
    """
    wanted = {
        name: line(rack, rack.nodes[name], peer.key)
        for name, peer in peers.items()
        if peer is not None and peer.key is not None
    }
    kept = [name for name in rack.nodes if name not in wanted]
    lines: list[bytes] = []
    done: set[str] = set()
    for old in before.splitlines(keepends=True):
        name = node_of_line(rack, old)
        if name is None:
            lines.append(old)
        elif name not in done and (name in wanted or name in kept):
            done.add(name)
            lines.append(old if name in kept else wanted[name])
    missing = [text for name, text in wanted.items() if name not in done]
    if operator is not None and public_key(operator).split(" ")[1] not in _key_words(before):
        missing.insert(0, f"{operator.strip()}\n".encode())
    if missing and lines and not lines[-1].endswith(b"\n"):
        lines.append(b"\n")
    return b"".join([*lines, *missing])


def node_of_line(rack: Rack, text: bytes) -> str | None:
    """The node that a line of ours accepts; None for a line of others."""
    words = text.split()
    start = mark(rack, "").encode()
    if not words or words[0].startswith(b"#") or not words[-1].startswith(start):
        return None
    return words[-1].removeprefix(start).decode("utf-8", "replace")


def _key_words(content: bytes) -> set[str]:
    """Every word of the lines that count; a key is one of them, wherever its options end."""
    lines = [text for text in content.decode("utf-8", "replace").splitlines() if not text.lstrip().startswith("#")]
    return {word for text in lines for word in text.split()}


def changes(rack: Rack, before: bytes, after: bytes) -> list[Event]:
    """Return the differences, by the names of the nodes."""
    old, new = _our_keys(rack, before), _our_keys(rack, after)
    found = [
        *acted(Action.ALLOW_LOGIN, *(name for name in new if name not in old)),
        *acted(Action.UPDATE_LOGIN, *(name for name in old if new.get(name, old[name]) != old[name])),
        *acted(Action.REVOKE_LOGIN, *(name for name in old if name not in new)),
    ]
    own = [line for line in after.splitlines() if node_of_line(rack, line) is None and line not in before.splitlines()]
    found += acted(Action.ALLOW_LOGIN, "the operator's key") if own else ()
    return found or [*acted(Action.REMOVE, "a line that is there twice")]


def _our_keys(rack: Rack, content: bytes) -> dict[str, bytes]:
    named = ((node_of_line(rack, text), text) for text in content.splitlines())
    return {name: text for name, text in named if name is not None}
