"""Protection of daemons that must answer when memory runs out - sshd, the network, logins: reserved memory and OOM
scores. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.model import Rack
from core.util.event import Event, field_change
from core.util.managed_file import ManagedFile, header
from roles.memory.cgroups import GUARD, SYSTEM, MemoryCgroup, MemoryCgroups, amount
from roles.memory.unit_paths import UNITS

MEBIBYTE = 1024**2
DROPIN = "zz-sparkrack.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""


@dataclass(frozen=True)
class Daemon:
    """One service. `process`: what the kernel calls its main process (15 letters). `keep`: MiB that are not reclaimed
    from it. `score`: what its main process has; `by_unit`: whether its unit gives it that."""

    unit: str
    process: str
    keep: int
    score: int
    by_unit: bool = True


# claim: memory.daemon-reserve
DAEMONS = (
    # sshd gives itself -1000, and each session what its unit had (OpenSSH, oom_adjust_setup): with OOMScoreAdjust=-900
    # here all that is started over ssh would have -900 too, the programs that eat the memory among it (measured).
    Daemon("ssh.service", "sshd", 32, -1000, by_unit=False),
    Daemon("systemd-networkd.service", "systemd-network", 32, -900),
    Daemon("NetworkManager.service", "NetworkManager", 32, -900),
    Daemon("systemd-logind.service", "systemd-logind", 16, -900),
)
PATHS = tuple(f"{UNITS}/{unit}.d/{DROPIN}" for unit in (SYSTEM, *(daemon.unit for daemon in DAEMONS)))
ENOUGH = -900
"""A main process with this or less is left as it is."""
GUARD_KEEPS = 16
SUM = sum(daemon.keep for daemon in DAEMONS) + GUARD_KEEPS
"""Reservation of the parent slice: a group's reservation holds only as far as its parents reserve as much (kernel,
cgroup-v2, memory.min).
"""


def keeps() -> dict[str, int]:
    """Return MemoryMin of each unit, in MiB."""
    return {SYSTEM: SUM, **{daemon.unit: daemon.keep for daemon in DAEMONS}, GUARD: GUARD_KEEPS}


def dropins(rack: Rack) -> list[ManagedFile]:
    """A drop-in for each; one for a service that the node does not have changes nothing."""
    texts = {SYSTEM: f"[Slice]\nMemoryMin={SUM}M\n"}
    for daemon in DAEMONS:
        adjust = f"OOMScoreAdjust={daemon.score}\n" if daemon.by_unit else ""
        texts[daemon.unit] = f"[Service]\nMemoryMin={daemon.keep}M\n{adjust}"
    first = header(rack.rack)
    return [ManagedFile(f"{UNITS}/{unit}.d/{DROPIN}", f"{first}\n{text}".encode()) for unit, text in texts.items()]


def drifted_reservations(live: MemoryCgroups) -> dict[str, int]:
    """Return the groups whose memory.min differs live, with the desired bytes."""
    return {
        unit: keep * MEBIBYTE
        for unit, keep in keeps().items()
        if "memory.min" in (group := live.group(unit)).values and _protected_bytes(group) != keep * MEBIBYTE
    }


def unprotected_daemons(live: MemoryCgroups) -> list[Daemon]:
    """The services whose main process the kernel might kill."""
    return [
        daemon
        for daemon in DAEMONS
        if (score := live.group(daemon.unit).score(daemon.process)) is not None and score > ENOUGH
    ]


def changes(live: MemoryCgroups) -> list[Event]:
    """What becomes of what runs."""
    events = []
    for unit, wanted in drifted_reservations(live).items():
        now = _protected_bytes(live.group(unit))
        events.append(field_change(unit, "MemoryMin", amount(now), amount(wanted), "live, nothing is restarted"))
    for daemon in unprotected_daemons(live):
        old, name = live.group(daemon.unit).score(daemon.process), f"OOM score of {daemon.process}"
        events.append(field_change(daemon.unit, name, old, daemon.score, "live, nothing is restarted"))
    return events


def _protected_bytes(group: MemoryCgroup) -> int | None:
    return group.bytes("memory.min")
