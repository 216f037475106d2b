"""Who a node is to the others, and with which account they log in. Pure: from rack.yaml and what a node holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address

from sparkrack.fleet import Node, Rack, addresses_of

KEY = re.compile(r"(?P<kind>[a-z0-9@.-]{3,60}) (?P<blob>AAAA[A-Za-z0-9+/]{8,}={0,2})(?: .*)?")
"""A public key as one line of its file: kind, key in base64, and whatever comment."""
NO_SHELL = ("nologin", "false")


@dataclass(frozen=True)
class Account:
    """An entry of the user database."""

    user: str
    uid: int
    gid: int
    home: str

    @property
    def owner(self) -> str:
        """As chown takes it and stat shows it."""
        return f"{self.uid}:{self.gid}"

    @property
    def folder(self) -> str:
        """Where its keys are."""
        return f"{self.home}/.ssh"


def account(entry: str, user: str) -> Account:
    """The account in a line of the user database. Raises ValueError unless it is this user's and one can log in."""
    fields = entry.rstrip("\n").split(":")
    if len(fields) != 7 or "\n" in entry.rstrip("\n") or not (_number(fields[2]) and _number(fields[3])):
        raise ValueError(f"access-keys: cannot be told from {entry[:80]!r}")
    name, home, shell = fields[0], fields[5], fields[6]
    if name != user:
        raise ValueError(f"access-keys: logged in as {name!r}, but access.user is {user!r}")
    if not re.fullmatch(r"/[^\s:%\"'\\]+", home):
        raise ValueError(f"access-keys: {user} has no home that can be used: {home!r}")
    if shell.rsplit("/", 1)[-1] in NO_SHELL:
        raise ValueError(f"access-keys: {user} has no shell to log in with: {shell!r}")
    return Account(name, int(fields[2]), int(fields[3]), home.rstrip("/"))


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def public_key(line: str) -> str:
    """Kind and key of a public key, without its comment. Raises ValueError when the line is none."""
    found = KEY.fullmatch(line.strip())
    if not found:
        raise ValueError(f"cannot be told from {line[:60]!r}")
    return f"{found['kind']} {found['blob']}"


def host_name(text: str) -> str:
    """What the node calls itself. Raises ValueError when that is no host name."""
    name = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", name):
        raise ValueError(f"/proc/sys/kernel/hostname: cannot be told from {text[:80]!r}")
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
    """What the others need to know of a node. `key` is None as long as it has no key pair that is right."""

    account: Account
    key: str | None
    host_keys: tuple[str, ...]
