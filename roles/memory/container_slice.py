"""The ceiling of all containers together: the slice they are in, and its limits. Pure.

The kernel counts what it gives to a process: not the memory of CUDA. 12 GiB of CUDA inside MemoryMax=8G were not
killed (reported twice: Blackwellboy/model-serving-minefield 57, graphistry/pygraphistry 1671).
"""

from __future__ import annotations

from core.model import CONTAINER_SLICE, Rack, mebibytes
from core.util import resources
from core.util.event import Event, EventKind, field_change
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.docker.options import DockerOptions
from roles.memory.cgroups import MemoryCgroup, amount
from roles.memory.unit_paths import UNITS

PATH = f"{UNITS}/{CONTAINER_SLICE}"


def ceiling(rack: Rack) -> str:
    """The most memory that all containers of a node may have together, as rack.yaml writes it."""
    return rack.options(DockerOptions).memory


def unit(rack: Rack) -> ManagedFile:
    """Return the unit. It is active from boot on, so that its limits apply, and can be read, before the first
    container.
    """
    text = resources.file_text(
        "roles.memory", "templates/container.slice", header=header(rack.rack), most=ceiling(rack)
    )
    return ManagedFile(PATH, text.encode(), validate=validate_unit(CONTAINER_SLICE))


def limits(rack: Rack) -> dict[str, tuple[str, int]]:
    """By file of the control group: what systemd calls the limit, and its bytes."""
    return {
        "memory.max": ("MemoryMax", mebibytes(ceiling(rack)) * 1024**2),
        "memory.swap.max": ("MemorySwapMax", 0),
    }


def wrong(rack: Rack, now: MemoryCgroup) -> dict[str, int]:
    """Return the limits that differ live, by file, with their desired values. Raises ValueError when memory is not
    counted.

    A kernel without swap accounting has no memory.swap.max: then there is nothing to set.
    """
    if now.there and "memory.max" not in now.values:
        raise ValueError(
            f"{CONTAINER_SLICE}: has no memory.max, so this kernel does not count memory; "
            "is cgroup_disable=memory on its command line?"
        )
    found = {}
    for file, (_, wanted) in limits(rack).items():
        if file in now.values and now.bytes(file) != wanted:
            found[file] = wanted
    return found


def settings(rack: Rack) -> str:
    """Return the limits as the unit sets them."""
    return f"MemoryMax {ceiling(rack)}, MemorySwapMax 0"


def changes(rack: Rack, now: MemoryCgroup) -> list[Event]:
    """What becomes of the limits."""
    events = []
    for file, wanted in wrong(rack, now).items():
        name = limits(rack)[file][0]
        old, new = amount(now.bytes(file)), amount(wanted)
        events.append(field_change(CONTAINER_SLICE, name, old, new, "live, nothing is restarted"))
    most, used = limits(rack)["memory.max"][1], now.bytes("memory.current") or 0
    if used > most:
        why = (
            f"{used // 1024**2}M are in use, more than {ceiling(rack)}: the kernel takes back what is cached, "
            "and kills in the containers if that is not enough"
        )
        events.append(Event(EventKind.CHANGE, subject=CONTAINER_SLICE, detail=why))
    return events


def notes(rack: Rack, total_kb: int) -> list[str]:
    """Return notes about allowed but ineffective values. `total_kb`: the node's MemTotal (KiB)."""
    if mebibytes(ceiling(rack)) * 1024 <= total_kb:
        return []
    return [f"docker.memory: {ceiling(rack)} is more than this node's {total_kb // 1024}M: it bounds nothing here"]
