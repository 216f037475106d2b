"""Whether the machines that answer are those that are meant, before a rack file names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkrack.hostkeys import HostKey, HostKeyError, known_as, offered, pinned

SECONDS = 5.0
"""How long a node may take to show its host keys."""


class StrangerError(Exception):
    """A machine that is not the one that is meant, or that nobody vouches for. The text is one line."""


@dataclass(frozen=True)
class Shown:
    """What a node shows. `fresh`: the keys that are to be pinned for it; none when one is pinned already. `why`: it
    shows nothing."""

    fresh: tuple[HostKey, ...] = ()
    why: str = ""


Confirm = Callable[[str, tuple[HostKey, ...]], bool]
"""Asks a person whether these are the keys of the node of that name."""


def meet(
    name: str, address: str, port: int, file: Path, vouched: Mapping[str, frozenset[str]] | None, confirm: Confirm
) -> Shown:
    """The keys of a node, pinned in `file`, vouched for by name or address, or confirmed. Raises StrangerError or
    HostKeyError; nothing is written."""
    pins = pinned(file, address, port)
    try:
        keys = offered(address, port, SECONDS)
    except HostKeyError as fault:
        return Shown(why=str(fault))
    if set(pins) & set(keys):
        return Shown()
    named = f"{keys[0].kind} {keys[0].fingerprint}"
    if pins:
        raise StrangerError(
            f"{name}: shows {named}, and {file} has another key for {address}: it is another machine, or was "
            "re-imaged; take that line out of the file when you know that it was"
        )
    if vouched is not None:
        wanted = vouched.get(name, frozenset()) | vouched.get(known_as(address, port), frozenset())
        fresh = tuple(key for key in keys if key.fingerprint in wanted)
        if not fresh:
            raise StrangerError(f"{name}: shows {named}, which --host-keys does not have for it")
        return Shown(fresh)
    if not confirm(name, keys):
        raise StrangerError(f"{name}: its host key was not confirmed")
    return Shown(keys)
