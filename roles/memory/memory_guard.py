"""The guard: ends containers when too little memory is available, for whatever reason. Its script and its unit. Pure.

Of several served units on a node it ends one, and all containers when memory is not back after that.

No limit of the kernel counts what CUDA takes on a GB10; MemAvailable falls with it all the same.
"""

from __future__ import annotations

from core.model import CONTAINER_SLICE, Rack, mebibytes
from core.util import resources
from core.util.event import FieldValue
from core.util.managed_file import ManagedFile, header, validate_shell, validate_unit
from roles.memory.cgroups import CGROUPS, GUARD, MemoryCgroup, MemoryCgroups, amount
from roles.memory.daemon_protection import GUARD_KEEPS
from roles.memory.options import MemoryOptions
from roles.memory.unit_paths import SCRIPTS, UNITS

SCRIPT = f"{SCRIPTS}/memory-guard"
UNIT = f"{UNITS}/{GUARD}"
# claim: memory.guard-cuda
SAMPLE = "0.25"
"""Seconds between two readings. Sites that run such a guard read every 100 to 250 ms (reported: spark-ds41f)."""
AGAIN = 5
"""Seconds until it may end containers again although memory did not come back."""


def script(rack: Rack) -> ManagedFile:
    """Return the script of the guard."""
    # bash, not sh: it can sleep, read and write without starting another program, which fails when memory is short.
    text = resources.file_text(
        "roles.memory",
        "templates/memory-guard.sh",
        header=header(rack.rack),
        slice=CONTAINER_SLICE,
        cgroups=CGROUPS,
        units=UNITS,
        marks="/run/sparkrack-serve",
        again=AGAIN,
        sample=SAMPLE,
    )
    return ManagedFile(SCRIPT, text.encode(), "755", validate_shell("bash"))


def unit(rack: Rack) -> ManagedFile:
    """Return the unit that starts it before any container, and again whenever it ends."""
    text = resources.file_text(
        "roles.memory",
        "templates/sparkrack-memory-guard.service",
        header=header(rack.rack),
        script=SCRIPT,
        floor=floor_kb(rack),
        keeps=GUARD_KEEPS,
    )
    return ManagedFile(UNIT, text.encode(), validate=validate_unit(GUARD))


def files(rack: Rack) -> list[ManagedFile]:
    """Both, the script first: the unit names it. None where rack.yaml wants no guard."""
    return [script(rack), unit(rack)] if rack.options(MemoryOptions).floor else []


def floor_kb(rack: Rack) -> int:
    """Return the floor in KiB; 0 for none."""
    floor = rack.options(MemoryOptions).floor
    return mebibytes(floor) * 1024 if floor else 0


def command_line(rack: Rack) -> str:
    """Return the command line of the running guard: it determines the behaviour, regardless of the files."""
    return f"/bin/bash {SCRIPT} {floor_kb(rack)}"


def start_blocker(rack: Rack, live: MemoryCgroups, total_kb: int, available_kb: int) -> str | None:
    """Return why no guard may be started here now, or None. All figures in KiB."""
    floor, free = floor_kb(rack), rack.options(MemoryOptions).min_free_kbytes
    if floor >= total_kb - free:
        # Memory that is reserved for the kernel never counts as available.
        return (
            f"memory.floor: {floor} KiB, beside {free} KiB of memory.min_free_kbytes, is never available in "
            f"this node's {total_kb} KiB: every container would be ended as it starts"
        )
    if available_kb < floor and live.group(CONTAINER_SLICE).values.get("populated") == "1":
        return (
            f"memory.floor: only {available_kb} KiB are available now, less than {floor} KiB: the guard would end "
            f"every container in {CONTAINER_SLICE} as soon as it is armed; end them, or lower the floor, and run again"
        )
    return None


def restart_reason(rack: Rack, now: MemoryCgroup) -> str | FieldValue | None:
    """Return why the guard is started or restarted even if its files are as they must be, or None."""
    if not now.runs:
        return "it does not run"
    if now.runs != command_line(rack):
        floor = now.runs.removeprefix(f"/bin/bash {SCRIPT} ")
        shown = amount(int(floor) * 1024) if floor.isascii() and floor.isdigit() else repr(now.runs)
        return FieldValue("memory.floor", shown, str(rack.options(MemoryOptions).floor))
    if now.score("memory-guard") != -1000:
        return f"its OOM score is {now.score('memory-guard')}, wanted -1000"
    return None
