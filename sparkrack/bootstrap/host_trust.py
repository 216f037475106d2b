"""Identity check of a node: its host keys against those pinned, read from a console, or confirmed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.model import Node, Rack
from core.ssh.fingerprint_file import read_fingerprints
from core.ssh.host_keys import KINDS, HostKey, HostKeyError, SilentError, known_as, offered, pinned
from sparkrack.node_login.errors import BootstrapError

_ASKING = 5.0
"""Seconds for one look at the host keys."""
_PAUSE = 0.5


@dataclass(frozen=True)
class KeyOffer:
    """The host keys of a node, and the keys pinned for it."""

    keys: tuple[HostKey, ...]
    pins: tuple[HostKey, ...]

    @property
    def known(self) -> tuple[HostKey, ...]:
        """Its keys that are pinned."""
        return tuple(key for key in self.keys if key in self.pins)

    @property
    def named(self) -> str:
        """The key to compare by eye: the best one."""
        return f"{label(self.keys[0])} {self.keys[0].fingerprint}"


def label(key: HostKey) -> str:
    """Type of the key as a console shows it."""
    return key.kind.removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper().replace("NISTP", "ECDSA ")


def offer(rack: Rack, node: Node, timeout: float, vouched_for: frozenset[str] = frozenset()) -> KeyOffer:
    """Ask a node, for `timeout` seconds if need be. Its best key is enough, unless only another one of it is pinned or
    vouched for. Raises BootstrapError."""
    address, port, file = str(node.address), rack.access.port, rack.access.known_hosts
    until = time.monotonic() + timeout
    while True:
        try:
            pins = pinned(file, address, port)
        except HostKeyError as fault:
            raise BootstrapError(str(fault)) from None
        wanted = vouched_for | {key.fingerprint for key in pins}
        try:
            return KeyOffer(_shown_keys(address, port, wanted), pins)
        except HostKeyError as fault:
            if time.monotonic() >= until:
                raise BootstrapError(str(fault)) from None
        time.sleep(_PAUSE)


def _shown_keys(address: str, port: int, wanted: frozenset[str] | set[str]) -> tuple[HostKey, ...]:
    try:
        keys = offered(address, port, _ASKING, KINDS[:1])
    except SilentError:
        raise
    except HostKeyError:
        return offered(address, port, _ASKING)
    if wanted and not any(key.fingerprint in wanted for key in keys):
        return offered(address, port, _ASKING)
    return keys


def key_conflict(found: KeyOffer, file: Path, replace: bool) -> BootstrapError | None:
    """Return why a node must not even be confirmed: other keys are pinned for it. None when it is known, or new."""
    if found.known or not found.pins or replace:
        return None
    pins = ", ".join(key.fingerprint for key in found.pins[:3])
    return BootstrapError(
        f"shows {found.named}, and {file} has {pins}: it is another machine, or was re-imaged; if you know that it "
        "was, pass --replace-host-key; nothing was sent"
    )


def match_fingerprints(
    found: KeyOffer, node: str, file: Path, vouchers: Mapping[str, frozenset[str]]
) -> tuple[HostKey, ...]:
    """Return the keys of a node that a file confirms. Raises BootstrapError when there is none."""
    wanted = vouchers.get(node, frozenset())
    keys = tuple(key for key in found.keys if key.fingerprint in wanted)
    if not keys:
        has = f"has {', '.join(sorted(wanted)[:3])}" if wanted else "has none for it"
        raise BootstrapError(f"shows {found.named}, and {file} {has}; nothing was sent")
    return keys


def fingerprints_of(rack: Rack, file: Path) -> dict[str, frozenset[str]]:
    """Read the fingerprints of a file, by node of the rack; a node is listed by its name or by its address. Raises
    BootstrapError.
    """
    try:
        found = read_fingerprints(file)
    except HostKeyError as fault:
        raise BootstrapError(str(fault)) from None
    known = {name: (name, known_as(str(node.address), rack.access.port)) for name, node in rack.nodes.items()}
    return {
        name: frozenset().union(*(found[word] for word in words if word in found))
        for name, words in known.items()
        if any(word in found for word in words)
    }
