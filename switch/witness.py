"""The other end of a leg: what the node's own port says of the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .batch import Link

if TYPE_CHECKING:
    from sparkrack.fleet.cabling import Half

Ask = Callable[[str, str], str | None]
"""Runs a command on a node and gives its output; None when the node cannot be asked."""

_UP = 0x1


@dataclass(frozen=True)
class Seen:
    """What the nodes said: who sees another link than the switch does, and who cannot tell. One line each."""

    disagree: tuple[str, ...]
    cannot_tell: tuple[str, ...]


Witness = Callable[[Sequence[Link]], Seen]


def witness(ask: Ask) -> Witness:
    """A witness that asks each node once, for both halves of its port."""

    def look(links: Sequence[Link]) -> Seen:
        disagree: list[str] = []
        cannot_tell: list[str] = []
        for link in links:
            output = ask(link.port.node, _command(link.port.halves))
            for half in link.port.halves:
                found = _judge(half, link.leg.gbps, None if output is None else _section(output, half))
                if found is None:
                    continue
                (disagree if found[0] else cannot_tell).append(f"{half}: {found[1]}")
        return Seen(tuple(disagree), tuple(cannot_tell))

    return look


def _command(halves: Sequence[Half]) -> str:
    names = " ".join(half.interface for half in halves)
    return (
        f'for i in {names}; do echo "interface=$i"; echo "flags=$(cat /sys/class/net/$i/flags 2>/dev/null)"; '
        "ethtool $i 2>/dev/null; done; true"
    )


def _section(output: str, half: Half) -> dict[str, str]:
    """The fields that were printed for one half."""
    sections = output.split("interface=")
    text = next((part for part in sections if part.splitlines()[:1] == [half.interface]), "")
    lines = (line.strip() for line in text.splitlines()[1:])
    pairs = (line.split("=", 1) if line.startswith("flags=") else line.split(": ", 1) for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _judge(half: Half, gbps: int, seen: dict[str, str] | None) -> tuple[bool, str] | None:
    """None when the half agrees; else whether it disagrees (or cannot tell), and what it says."""
    if seen is None:
        return False, f"{half.node} is not in this run"
    try:
        up = int(seen.get("flags", ""), 16) & _UP
    except ValueError:
        return False, "there is no such interface yet"
    if not up:
        return False, "the interface is switched off on the node"
    link, speed = seen.get("Link detected"), seen.get("Speed")
    if link is None or speed is None:
        return False, "ethtool does not tell"
    if link != "yes":
        return True, f"sees no link, should see {gbps}G"
    return None if speed == f"{gbps * 1000}Mb/s" else (True, f"runs at {speed}, should run at {gbps * 1000}Mb/s")
