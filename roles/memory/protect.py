"""What must answer when memory is gone: sshd, the network, logins. What is kept for them, and from the killer. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from roles.memory.live import GUARD, SYSTEM, Group, Live, amount
from roles.memory.owned import UNITS, Owned, notice
from sparkrack.fleet import Rack

MEBIBYTE = 1024**2
DROPIN = "zz-sparkrack.conf"
"""Drop-ins apply in the order of their names, whatever their folder: the last one wins."""


@dataclass(frozen=True)
class Daemon:
    """One service. `process`: what the kernel calls its main process (15 letters). `keep`: MiB that are not reclaimed
    from it. `score`: what its main process has; `by_unit`: whether its unit gives it that."""

    unit: str
    process: str
    keep: int
    score: int
    by_unit: bool = True


DAEMONS = (
    # sshd gives itself -1000, and each session what its unit had (OpenSSH, oom_adjust_setup): with OOMScoreAdjust=-900
    # here all that is started over ssh would have -900 too, the programs that eat the memory among it (measured).
    Daemon("ssh.service", "sshd", 32, -1000, by_unit=False),
    Daemon("systemd-networkd.service", "systemd-network", 32, -900),
    Daemon("NetworkManager.service", "NetworkManager", 32, -900),
    Daemon("systemd-logind.service", "systemd-logind", 16, -900),
)
ENOUGH = -900
"""A main process with this or less is left as it is."""
GUARD_KEEPS = 16
SUM = sum(daemon.keep for daemon in DAEMONS) + GUARD_KEEPS
"""What is kept in a group holds only as far as the groups around it keep as much (kernel, cgroup-v2, memory.min)."""


def keeps() -> dict[str, int]:
    """MemoryMin of each unit, in MiB."""
    return {SYSTEM: SUM, **{daemon.unit: daemon.keep for daemon in DAEMONS}, GUARD: GUARD_KEEPS}


def dropins(rack: Rack) -> list[Owned]:
    """A drop-in for each; one for a service that the node does not have changes nothing."""
    texts = {SYSTEM: f"[Slice]\nMemoryMin={SUM}M\n"}
    for daemon in DAEMONS:
        adjust = f"OOMScoreAdjust={daemon.score}\n" if daemon.by_unit else ""
        texts[daemon.unit] = f"[Service]\nMemoryMin={daemon.keep}M\n{adjust}"
    first = notice(rack.rack)
    return [Owned(f"{UNITS}/{unit}.d/{DROPIN}", f"{first}\n{text}".encode()) for unit, text in texts.items()]


def kept_wrong(live: Live) -> dict[str, int]:
    """The groups whose memory.min differs live, with the bytes it shall be."""
    return {
        unit: keep * MEBIBYTE
        for unit, keep in keeps().items()
        if "memory.min" in (group := live.group(unit)).values and _kept(group) != keep * MEBIBYTE
    }


def exposed(live: Live) -> list[Daemon]:
    """The services whose main process the kernel might kill."""
    return [
        daemon
        for daemon in DAEMONS
        if (score := live.group(daemon.unit).score(daemon.process)) is not None and score > ENOUGH
    ]


def changes(live: Live) -> list[str]:
    """What becomes of what runs, in words."""
    lines = []
    for unit, wanted in kept_wrong(live).items():
        now = _kept(live.group(unit))
        lines.append(f"{unit}: MemoryMin {amount(now)} -> {amount(wanted)} (live, nothing is restarted)")
    for daemon in exposed(live):
        now, of = live.group(daemon.unit).score(daemon.process), f"{daemon.unit}: OOM score of {daemon.process}"
        lines.append(f"{of} {now} -> {daemon.score} (live, nothing is restarted)")
    return lines


def _kept(group: Group) -> int | None:
    return group.bytes("memory.min")
