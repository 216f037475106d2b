"""Live state of the role's units in kernel and systemd: the probe, and its parser. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model import CONTAINER_SLICE
from core.probes.systemd_units import MARKS, SystemdUnit
from core.util import resources
from roles.memory.unit_paths import UNIT_FOLDERS, UNITS

CGROUPS = "/sys/fs/cgroup"
SYSTEM = "system.slice"
GUARD = "sparkrack-memory-guard.service"
PROTECTED = ("ssh.service", "systemd-networkd.service", "NetworkManager.service", "systemd-logind.service")
WANTS = {CONTAINER_SLICE: "slices.target.wants", GUARD: "multi-user.target.wants"}
"""Targets that start each of our units at boot."""


def question() -> str:
    """Return the shell text."""
    groups = [CONTAINER_SLICE, SYSTEM, *(f"{SYSTEM}/{unit}" for unit in (*PROTECTED, GUARD))]
    # One shell for all of it, and next to no other program: it runs in every run on every node.
    return resources.shell_text(
        "roles.memory",
        "templates/live-groups.sh",
        cgroups=CGROUPS,
        groups=" ".join(groups),
        guard=GUARD,
        slice=CONTAINER_SLICE,
        wanted=" ".join(f"{UNITS}/{target}/{unit}" for unit, target in WANTS.items()),
        dropins=" ".join(f"{folder}/{unit}.d/*.conf" for folder in UNIT_FOLDERS for unit in WANTS),
        marks=MARKS,
    )


@dataclass(frozen=True)
class Process:
    """A process that systemd itself started."""

    pid: int
    name: str
    score: int


@dataclass
class MemoryCgroup:
    """Facts of a unit: the values of its control group by file name, None where there is no group."""

    there: bool = False
    values: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    runs: str = ""
    enabled: bool = False
    dropins: list[str] = field(default_factory=list)

    def unit(self, *, runs: bool, reload: bool) -> SystemdUnit:
        """Return the unit as systemd has it; one of ours that is masked has another file."""
        active, file = "active" if runs else "inactive", "enabled" if self.enabled else "disabled"
        return SystemdUnit("loaded" if self.there else "not-found", active, file, reload)

    def bytes(self, key: str) -> int | None:
        """A limit or a figure; None for no limit, or where this kernel has no such file."""
        value = self.values.get(key, "max")
        return None if value == "max" else int(value)

    def score(self, name: str) -> int | None:
        """Return the OOM score of the unit's main process; None when it does not run."""
        return next((process.score for process in self.processes if process.name == name), None)


@dataclass(frozen=True)
class MemoryCgroups:
    """The whole answer."""

    unified: bool
    groups: Mapping[str, MemoryCgroup]
    pending: frozenset[str]

    def group(self, unit: str) -> MemoryCgroup:
        """Return the facts of a unit; empty facts for an unknown one."""
        return self.groups.get(unit, MemoryCgroup())


def live(answer: str) -> MemoryCgroups:
    """Read the answer. Raises ValueError when a line is anything else than what the question prints."""
    groups: dict[str, MemoryCgroup] = {}
    pending, unified = set(), False
    for line in answer.splitlines():
        if line == "unified":
            unified = True
        elif line.endswith(" pending"):
            pending.add(line.removesuffix(" pending").removesuffix(".pending"))
        else:
            unit, _, reported = line.partition(" ")
            if unit not in (CONTAINER_SLICE, SYSTEM, GUARD, *PROTECTED) or not _parse_report(
                groups.setdefault(unit, MemoryCgroup()), reported
            ):
                raise ValueError(f"memory-live: unexpected probe output {line[:80]!r}")
    return MemoryCgroups(unified, groups, frozenset(pending))


def _parse_report(group: MemoryCgroup, reported: str) -> bool:
    match reported.split(" ", 3):
        case ["there"]:
            group.there = True
        case ["enabled"]:
            group.enabled = True
        case ["dropin", *_]:
            group.dropins.append(reported.partition(" ")[2])
        case ["runs", *_]:
            group.runs = reported.partition(" ")[2].strip()
        case ["process", pid, score, name] if pid.isdigit() and score.removeprefix("-").isdigit():
            group.processes.append(Process(int(pid), name, int(score)))
        case ["populated" | "memory.max" | "memory.swap.max" | "memory.min" | "memory.current" as key, value] if (
            value == "max" or (value.isascii() and value.isdigit())
        ):
            group.values[key] = value
        case _:
            return False
    return True


def amount(size: int | None) -> str:
    """Bytes as rack.yaml would write them, where that is exact."""
    if size is None:
        return "no limit"
    for unit, step in (("G", 1024**3), ("M", 1024**2), ("K", 1024)):
        if size and size % step == 0:
            return f"{size // step}{unit}"
    return f"{size} bytes" if size else "0"
