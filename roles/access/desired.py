"""Identity of a node for the others, and the account of its logins. Pure: from rack.yaml and the facts of a node."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from ipaddress import IPv4Address

from core.model import Node, Rack, addresses_of

KEY = re.compile(r"(?P<kind>[a-z0-9@.-]{3,60}) (?P<blob>AAAA[A-Za-z0-9+/]{8,}={0,2})(?: .*)?")
"""A public key as one line of its file: kind, key in base64, and whatever comment."""
NO_SHELL = ("nologin", "false")


@dataclass(frozen=True)
class NodeAccount:
    """An entry of the user database."""

    user: str
    uid: int
    gid: int
    home: str

    @property
    def owner(self) -> str:
        """Owner in the form that chown accepts and stat prints."""
        return f"{self.uid}:{self.gid}"

    @property
    def folder(self) -> str:
        """Folder of the account's keys."""
        return f"{self.home}/.ssh"


def account(entry: str, user: str) -> NodeAccount:
    """The account in a line of the user database. Raises ValueError unless it is this user's and one can log in."""
    fields = entry.rstrip("\n").split(":")
    if len(fields) != 7 or "\n" in entry.rstrip("\n") or not (_is_number(fields[2]) and _is_number(fields[3])):
        raise ValueError(f"access-keys: unexpected probe output {entry[:80]!r}")
    name, home, shell = fields[0], fields[5], fields[6]
    if name != user:
        raise ValueError(f"access-keys: logged in as {name!r}, but access.user is {user!r}")
    if not re.fullmatch(r"/[^\s:%\"'\\]+", home):
        raise ValueError(f"access-keys: {user} has no home that can be used: {home!r}")
    if shell.rsplit("/", 1)[-1] in NO_SHELL:
        raise ValueError(f"access-keys: {user} has no shell to log in with: {shell!r}")
    return NodeAccount(name, int(fields[2]), int(fields[3]), home.rstrip("/"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def public_key(line: str) -> str:
    """Return type and key of a public key, without its comment. Raises ValueError for any other line."""
    found = KEY.fullmatch(line.strip())
    if not found:
        raise ValueError(f"unexpected probe output {line[:60]!r}")
    return f"{found['kind']} {found['blob']}"


def decode_file(fact: str, content: str) -> bytes:
    """Return the content of a file from its base64. Raises ValueError, which names the fact, for any other text."""
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        raise ValueError(f"{fact}: a file's content is garbled") from None


def host_name(text: str) -> str:
    """Parse the host name of the node. Raises ValueError for an invalid one."""
    name = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", name):
        raise ValueError(f"/proc/sys/kernel/hostname: unexpected probe output {text[:80]!r}")
    return name


def host_keys(text: str) -> tuple[str, ...]:
    """The public host keys of a node. Raises ValueError when it has none, or a line is something else."""
    try:
        found = tuple(sorted({public_key(line) for line in text.splitlines() if line.strip()}))
    except ValueError as wrong:
        raise ValueError(f"access-host-keys: {wrong}") from None
    if not found:
        raise ValueError("access-host-keys: the node has none")
    return found


def addresses(rack: Rack, node: Node) -> list[IPv4Address]:
    """Every address of a node: management first, then the fabric by port and half."""
    return list(dict.fromkeys([node.address, *(one.interface.ip for one in addresses_of(rack, node.name))]))


def called(rack: Rack, node: Node) -> list[str]:
    """All that a node answers to: its name, which ssh compares in small letters as well, and its addresses."""
    return list(dict.fromkeys([node.name, node.name.lower(), *map(str, addresses(rack, node))]))


@dataclass(frozen=True)
class Peer:
    """The data of a node that the others need. `key` is None as long as it has no valid key pair."""

    account: NodeAccount
    key: str | None
    host_keys: tuple[str, ...]
