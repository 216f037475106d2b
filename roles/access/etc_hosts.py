"""Names on a node: the lines of /etc/hosts. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from core.model import Node, Rack

HOSTS = "/etc/hosts"
BEGIN, END = "# sparkrack begin", "# sparkrack end"
CLOUD = "/etc/cloud/cloud.cfg.d/zz-sparkrack.cfg"
"""cloud-init reads its files in the order of their names: the last one wins."""
# claim: access.cloud-init-hosts
CLOUD_TEXT = b"# Written by sparkrack: /etc/hosts is kept by it.\nmanage_etc_hosts: false\n"
BARE = b"127.0.0.1 localhost\n"
"""Initial content for a missing file."""


def hosts(rack: Rack, node: Node, host_name: str, before: bytes) -> bytes:
    """Return the same file with our block, and without the node's own names on lines of loopback.

    `host_name`: the node's own host name, which may differ from its name in rack.yaml; programs resolve it. Raises
    ValueError when the block is invalid, or when another line gives one of our names another address.
    """
    lines = before.splitlines(keepends=True)
    start, stop = _block_slice(lines)
    own = own_names(rack, node, host_name)
    head, tail = ([_without_own_names(line, own) for line in part] for part in (lines[:start], lines[stop:]))
    contested(rack, own, node, [*head, *tail])
    above = b"".join(head)
    if above and not above.endswith(b"\n"):
        above += b"\n"
    return above + block(rack, node, own) + b"".join(tail)


def own_names(rack: Rack, node: Node, host_name: str) -> list[str]:
    """Return the names of this node: its name in the rack, and its host name unless that is another node's name."""
    others = {name.lower() for name in rack.nodes if name != node.name}
    return list(dict.fromkeys([node.name, *([] if host_name.lower() in others else [host_name])]))


def block(rack: Rack, node: Node, own: list[str]) -> bytes:
    """The name of each node with its management address."""
    lines = [f"{other.address} {' '.join(own) if name == node.name else name}" for name, other in rack.nodes.items()]
    return "\n".join([f"{BEGIN}: written for the rack {rack.rack}", *lines, END, ""]).encode()


def _block_slice(lines: list[bytes]) -> tuple[int, int]:
    """Return the slice of our block; an empty one at the end when there is none."""
    starts = [number for number, line in enumerate(lines) if line.startswith(BEGIN.encode())]
    ends = [number for number, line in enumerate(lines) if line.startswith(END.encode())]
    if not starts and not ends:
        return len(lines), len(lines)
    if len(starts) != 1 or len(ends) != 1 or starts[0] > ends[0]:
        where = ", ".join(str(number + 1) for number in sorted([*starts, *ends]))
        raise ValueError(f"{HOSTS}: the block between '{BEGIN}' and '{END}' is incomplete, see line {where}; remove it")
    return starts[0], ends[0] + 1


def _line_fields(line: bytes) -> list[str]:
    return line.partition(b"#")[0].decode("utf-8", "surrogateescape").split()


def _without_own_names(line: bytes, own: list[str]) -> bytes:
    """A line without the node's own names if it is about loopback; empty when no name is left on it."""
    fields = _line_fields(line)
    if not fields or not loopback(fields[0]):
        return line
    named = [word for word in fields[1:] if is_one_of(word, own)]
    if not named:
        return line
    if len(named) == len(fields) - 1:
        return b""
    text, hash_, comment = line.partition(b"#")
    for word in named:
        spelled = re.escape(word.encode("utf-8", "surrogateescape"))
        text = re.sub(rb"[ \t]+" + spelled + rb"(?=\s|$)", b"", text)
    return text + hash_ + comment


def loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def is_one_of(word: str, names: list[str]) -> bool:
    """Return whether a word is one of the names, alone or with a domain."""
    return any(word.lower() == name.lower() or word.lower().startswith(f"{name.lower()}.") for name in names)


def contested(rack: Rack, own: list[str], node: Node, lines: list[bytes]) -> None:
    """Raises ValueError when a line of others gives one of our names an address that is not its own."""
    wanted = {name.lower(): str(other.address) for name, other in rack.nodes.items()}
    wanted |= {name.lower(): str(node.address) for name in own}
    for line in lines:
        fields = _line_fields(line)
        for word in fields[1:]:
            address = wanted.get(word.lower())
            if address is not None and fields[0] != address:
                shown = line.decode("utf-8", "backslashreplace").strip()[:120]
                raise ValueError(f"{HOSTS}: the line {shown!r} gives {word} another address than {address}; remove it")


@dataclass(frozen=True)
class Cloud:
    """Effect of cloud-init on /etc/hosts at boot: whether it writes the file, which file after ours enables that, and
    whether its user data does, which no drop-in overrides.
    """

    writes: bool
    later: tuple[str, ...]
    user_data: bool


def cloud(listing: str) -> Cloud:
    """The same from `path:line` matches, in the order in which cloud-init reads its files."""
    writes = user_data = False
    later: list[str] = []
    for line in listing.splitlines():
        path, _, setting = line.partition(":")
        does = setting.partition(":")[2].partition("#")[0].strip().strip("\"'").lower() not in ("false", "no", "off")
        if path.startswith("/var/"):
            user_data = does
        elif path.startswith(f"{CLOUD.rpartition('/')[0]}/") and path > CLOUD:
            later += [path] if does else []
        elif path != CLOUD:
            writes = does
    return Cloud(writes, tuple(later), user_data)
