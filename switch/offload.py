"""Legs whose frames the CPU forwards although their bridge port is flagged as offloaded. Pure.

After a link was retrained, a port may keep its flag H and `hw-offload=true` while its frames reach the CPU only
(reported from a CRS804 and a CRS812 on 7.23 and 7.24rc4). The counter of frames that the CPU received,
`driver-rx-packet`, shows it when it grows with `rx-packet`. So the counters are read twice, before and after everything
else that is read anyway: this needs no extra waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.routeros.menus import BRIDGE_PORT, ETHERNET, Row, Sentence
from core.routeros.values import ValueKind, canonical

if TYPE_CHECKING:
    from core.routeros.reading import SwitchReading

RECEIVED, BY_CPU = "rx-packet", "driver-rx-packet"
QUESTION: Sentence = (f"{ETHERNET.path}/print", f"=.proplist=default-name,{RECEIVED},{BY_CPU}")

# claim: switch.offload.idle-frames
LEAST_FRAMES = 100
"""Frames that a leg must receive between the two readings for a verdict. The CPU receives every ARP, LLDP and spanning
tree frame, and on an idle leg there is nothing else (inferred).
"""

REBIND_SECONDS = 0.1

REMEDY = "set hw=no and hw=yes on its bridge port again"


@dataclass(frozen=True)
class Forwarding:
    """Interfaces (factory names) whose frames the CPU forwards, and those with too few frames for a verdict."""

    by_cpu: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Note about legs without traffic; "" when there is none."""
        if not self.unseen:
            return ""
        legs = f"{len(self.unseen)} leg{'s' if len(self.unseen) != 1 else ''}"
        return f"no traffic seen on {legs}: unknown whether the chip or the CPU forwards their frames"


# claim: switch.offload.stale
def forwarding(before: Sequence[Row], after: Sequence[Row], interfaces: Iterable[str]) -> Forwarding:
    """Return how the frames of `interfaces` are forwarded, from two answers to QUESTION."""
    first, second = _frame_counts(before), _frame_counts(after)
    by_cpu, unseen = [], []
    for name in interfaces:
        old, new = first.get(name), second.get(name)
        received = new[0] - old[0] if old and new else 0
        if not old or not new or received < LEAST_FRAMES:
            unseen.append(name)
        elif 2 * (new[1] - old[1]) >= received:
            by_cpu.append(name)
    return Forwarding(tuple(by_cpu), tuple(unseen))


def rebinds(reading: SwitchReading, lanes: Iterable[str]) -> tuple[str, ...]:
    """The ids of the bridge ports of `lanes` (factory names) that are to be offloaded: they are bound again after a
    link came up."""
    ports = {row.get("interface"): row for row in reading.rows(BRIDGE_PORT)}
    rows = [ports.get(reading.ethernet[lane]["name"], {}) for lane in lanes]
    offloaded = (row for row in rows if _flag_is(row, "hw", "yes") and _flag_is(row, "disabled", "no"))
    return tuple(row[".id"] for row in offloaded if ".id" in row)


def rebind(ports: Sequence[str]) -> tuple[Sentence, Sentence]:
    """The sentences that bind bridge ports, by their ids, to the chip again: REBIND_SECONDS apart, as field
    configurations of these models write them after each change of a link."""
    off, on = ((f"{BRIDGE_PORT.path}/set", f"=.id={','.join(ports)}", f"=hw={value}") for value in ("no", "yes"))
    return off, on


def _flag_is(row: Row, name: str, wanted: str) -> bool:
    try:
        return canonical(ValueKind.FLAG, row.get(name, wanted)) == wanted
    except ValueError:
        return False


def _frame_counts(rows: Sequence[Row]) -> Mapping[str, tuple[int, int]]:
    """Return the frames received, and those of them that the CPU received, where the switch reports both."""
    return {
        row.get("default-name", ""): (int(row[RECEIVED]), int(row[BY_CPU]))
        for row in rows
        if row.get(RECEIVED, "").isdecimal() and row.get(BY_CPU, "").isdecimal()
    }
