"""The ceiling of all containers together: the slice they are in, and its limits. Pure.

The kernel counts what it gives to a process: not the memory of CUDA. 12 GiB of CUDA inside MemoryMax=8G were not
killed (reported twice: Blackwellboy/model-serving-minefield 57, graphistry/pygraphistry 1671).
"""

from __future__ import annotations

from roles.memory.live import Group, amount
from roles.memory.owned import UNITS, Owned, notice
from sparkrack.fleet import SLICE, Rack, mebibytes

PATH = f"{UNITS}/{SLICE}"
_UNIT = """\
{notice}
[Unit]
Description=All containers of this node
Documentation=man:systemd.slice(5)
Before=slices.target docker.service containerd.service

[Slice]
MemoryAccounting=yes
MemoryMax={most}
MemorySwapMax=0

[Install]
WantedBy=slices.target
"""


def unit(rack: Rack) -> Owned:
    """The unit. It is there from boot on, so that its limits stand, and can be read, before the first container."""
    return Owned(PATH, _UNIT.format(notice=notice(rack.rack), most=rack.docker.memory).encode())


def limits(rack: Rack) -> dict[str, tuple[str, int]]:
    """By file of the control group: what systemd calls the limit, and its bytes."""
    return {
        "memory.max": ("MemoryMax", mebibytes(rack.docker.memory) * 1024**2),
        "memory.swap.max": ("MemorySwapMax", 0),
    }


def wrong(rack: Rack, now: Group) -> dict[str, int]:
    """The limits that differ live, by file, with what they shall be. Raises ValueError when memory is not counted.

    A kernel without swap accounting has no memory.swap.max: then there is nothing to set.
    """
    if now.there and "memory.max" not in now.values:
        raise ValueError(
            f"{SLICE}: has no memory.max, so this kernel does not count memory; "
            "is cgroup_disable=memory on its command line?"
        )
    found = {}
    for file, (_, wanted) in limits(rack).items():
        if file in now.values and now.bytes(file) != wanted:
            found[file] = wanted
    return found


def changes(rack: Rack, now: Group) -> list[str]:
    """What becomes of the limits, in words."""
    lines = []
    for file, wanted in wrong(rack, now).items():
        name = limits(rack)[file][0]
        lines.append(f"{SLICE}: {name} {amount(now.bytes(file))} -> {amount(wanted)} (live, nothing is restarted)")
    if not now.there:
        lines.append(f"start {SLICE} with MemoryMax {rack.docker.memory}, MemorySwapMax 0")
    most, used = limits(rack)["memory.max"][1], now.bytes("memory.current") or 0
    if used > most:
        lines.append(
            f"{SLICE}: {used // 1024**2}M are in use, more than {rack.docker.memory}: the kernel takes back what is "
            "cached, and kills in the containers if that is not enough"
        )
    return lines


def notes(rack: Rack, total_kb: int) -> list[str]:
    """What is allowed, and a person should know. `total_kb`: the node's MemTotal (KiB)."""
    if mebibytes(rack.docker.memory) * 1024 <= total_kb:
        return []
    return [f"docker.memory: {rack.docker.memory} is more than this node's {total_kb // 1024}M: it bounds nothing here"]
