"""Whether the machines that answer are those that are meant, before a rack file names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.ssh.host_keys import HostKey, HostKeyError, known_as, offered, pinned

KEY_SCAN_SECONDS = 5.0
"""How long a node may take to show its host keys."""


class HostIdentityError(Exception):
    """Another machine answers, or its host key is not confirmed. The text is one line."""


@dataclass(frozen=True)
class OfferedKeys:
    """What a node shows. `fresh`: the keys that are to be pinned for it; none when one is pinned already. `why`: it
    shows nothing."""

    fresh: tuple[HostKey, ...] = ()
    why: str = ""


Confirm = Callable[[str, tuple[HostKey, ...]], bool]
"""Asks a person whether these are the keys of the node of that name."""


def verify_host_key(
    name: str, address: str, port: int, file: Path, vouched: Mapping[str, frozenset[str]] | None, confirm: Confirm
) -> OfferedKeys:
    """The keys of a node, pinned in `file`, vouched for by name or address, or confirmed. Raises HostIdentityError or
    HostKeyError; nothing is written."""
    pins = pinned(file, address, port)
    try:
        keys = offered(address, port, KEY_SCAN_SECONDS)
    except HostKeyError as fault:
        return OfferedKeys(why=str(fault))
    if set(pins) & set(keys):
        return OfferedKeys()
    named = f"{keys[0].kind} {keys[0].fingerprint}"
    if pins:
        raise HostIdentityError(
            f"{name}: shows {named}, and {file} has another key for {address}: it is another machine, or was "
            "re-imaged; take that line out of the file when you know that it was"
        )
    if vouched is not None:
        wanted = vouched.get(name, frozenset()) | vouched.get(known_as(address, port), frozenset())
        fresh = tuple(key for key in keys if key.fingerprint in wanted)
        if not fresh:
            raise HostIdentityError(f"{name}: shows {named}, which --host-keys does not have for it")
        return OfferedKeys(fresh)
    if not confirm(name, keys):
        raise HostIdentityError(f"{name}: its host key was not confirmed")
    return OfferedKeys(keys)
