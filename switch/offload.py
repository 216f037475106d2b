"""Legs whose frames the CPU forwards although their bridge port says that it is offloaded. Pure.

After a link was trained anew, a port may keep its flag H and `hw-offload=true` while its frames reach the CPU only
(reported from a CRS804 and a CRS812 on 7.23 and 7.24rc4). What shows it is the counter of frames that the CPU took,
`driver-rx-packet`, when it grows with `rx-packet`. So the counters are read twice, before and after everything else
that is read anyway: no look waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .menus import BRIDGE_PORT, ETHERNET, Row, Sentence
from .values import Kind, canonical

if TYPE_CHECKING:
    from .batch import Link
    from .reading import Reading

RECEIVED, BY_CPU = "rx-packet", "driver-rx-packet"
QUESTION: Sentence = (f"{ETHERNET.path}/print", f"=.proplist=default-name,{RECEIVED},{BY_CPU}")

LEAST_FRAMES = 100
"""Frames that a leg must receive between the two readings to be judged. The CPU takes every ARP, LLDP and spanning
tree frame, and on an idle leg there is nothing else (inferred)."""

REMEDY = "set hw=no and hw=yes on its bridge port again"


@dataclass(frozen=True)
class Forwarding:
    """Interfaces (factory names) whose frames the CPU forwards, and those that too few frames were seen on to tell."""

    by_cpu: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What is to be known of legs without traffic; "" when there is none."""
        if not self.unseen:
            return ""
        legs = f"{len(self.unseen)} leg{'s' if len(self.unseen) != 1 else ''}"
        return f"no traffic seen on {legs}: unknown whether the chip or the CPU forwards their frames"


def forwarding(before: Sequence[Row], after: Sequence[Row], interfaces: Iterable[str]) -> Forwarding:
    """Who forwards the frames of `interfaces`, by two answers to QUESTION."""
    first, second = _counts(before), _counts(after)
    by_cpu, unseen = [], []
    for name in interfaces:
        old, new = first.get(name), second.get(name)
        received = new[0] - old[0] if old and new else 0
        if not old or not new or received < LEAST_FRAMES:
            unseen.append(name)
        elif 2 * (new[1] - old[1]) >= received:
            by_cpu.append(name)
    return Forwarding(tuple(by_cpu), tuple(unseen))


def rebinds(reading: Reading, links: Iterable[Link]) -> tuple[str, ...]:
    """The ids of the bridge ports of `links` that are to be offloaded: they are bound anew after a link came up."""
    ports = {row.get("interface"): row for row in reading.rows(BRIDGE_PORT)}
    rows = [ports.get(reading.ethernet[link.leg.interface]["name"], {}) for link in links]
    wished = (row for row in rows if _flag(row, "hw", "yes") and _flag(row, "disabled", "no"))
    return tuple(row[".id"] for row in wished if ".id" in row)


def _flag(row: Row, name: str, wanted: str) -> bool:
    try:
        return canonical(Kind.FLAG, row.get(name, wanted)) == wanted
    except ValueError:
        return False


def _counts(rows: Sequence[Row]) -> Mapping[str, tuple[int, int]]:
    """Frames received, and those of them that the CPU took, where the switch tells both."""
    return {
        row.get("default-name", ""): (int(row[RECEIVED]), int(row[BY_CPU]))
        for row in rows
        if row.get(RECEIVED, "").isdecimal() and row.get(BY_CPU, "").isdecimal()
    }
