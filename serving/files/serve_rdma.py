"""Proof that the ranks of a unit use RDMA: bytes that its devices move while a completion runs, and NCCL's own word.

The gate proves that RDMA could carry the ranks; NCCL takes sockets without an error where it cannot open the devices in
its container (reported: a tenth of the rate, with the GPU at 100 %). Which devices are meant is NCCL_IB_HCA in
/etc/sparkrack/fabric.env. A device counts what it sends and receives in words of four bytes, acknowledgements of
RDMA included. It does not count by program: beside another unit that runs on the node, its bytes may be those of that
one, and NCCL's word about the rank's own start is what proves the rank.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from serve_unit import ServedRank, ServeError

FABRIC = "/etc/sparkrack/fabric.env"
DEVICES = "/sys/class/infiniband"
MOST_DEVICES = 16
WORD = 4
"""Bytes of one count of port_xmit_data and port_rcv_data."""
_DEVICES = re.compile(r"^NCCL_IB_HCA==?([A-Za-z0-9_.,-]+)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NETWORK = re.compile(r"NCCL INFO Using network (\S+)")
"""NCCL's line for each communicator (src/init.cc, seen with 2.28.9): IB, Socket, or the name of a plugin."""
NOTHING = "none"
"""The word of a rank whose journal has no such line."""

Counters = Mapping[str, "int | None"]
"""Bytes that each device has moved since the boot, None where that cannot be read."""


def counters(fabric: str = FABRIC, devices: str = DEVICES) -> dict[str, int | None]:
    """Return the bytes that each device of NCCL_IB_HCA has moved; nothing where no device is named."""
    try:
        found = _DEVICES.search(Path(fabric).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    names = [name for name in found[1].split(",") if _NAME.fullmatch(name)] if found else []
    return {name: _read_moved_bytes(Path(devices, name, "ports/1/counters")) for name in names[:MOST_DEVICES]}


# claim: serving.rdma-bytes
def _read_moved_bytes(folder: Path) -> int | None:
    try:
        return WORD * sum(int((folder / name).read_text()) for name in ("port_xmit_data", "port_rcv_data"))
    except (OSError, ValueError):
        return None


def network(journalctl: Sequence[str], service: str, invocation: str, limit: float) -> str:
    """Return the networks that NCCL named since the start of a rank, such as `IB` or `IB, Socket`; NOTHING without."""
    own = [f"_SYSTEMD_UNIT={service}", *([f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else [])]
    command = [*journalctl, "--output=cat", "--no-pager", "--quiet", "--grep=NCCL INFO Using network", *own]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
    except (OSError, subprocess.SubprocessError):
        return NOTHING
    return ", ".join(sorted(set(_NETWORK.findall(done.stdout.decode(errors="replace"))))) or NOTHING


def reported(value: object) -> dict[str, int | None]:
    """Return the counters of a report. Raises ServeError for anything else."""
    if not isinstance(value, dict) or len(value) > MOST_DEVICES:
        raise ServeError("the report has no valid counters of RDMA")
    for name, moved in value.items():
        if not _NAME.fullmatch(name) or not (moved is None or type(moved) is int):
            raise ServeError("the report has no valid counters of RDMA")
    return dict(value)


def fault(ranks: Sequence[ServedRank], before: Mapping[int, Counters], after: Mapping[int, Any]) -> str:
    """Return why the ranks are not proven to use RDMA, as a clause; nothing if each of them moved bytes.

    Args:
        ranks: all ranks of the unit.
        before: the counters of each rank as it reported them before the completion.
        after: the reports of each rank after it, with `rdma`, `network` and `beside`.
    """
    found = []
    for rank in ranks:
        report, earlier = after[rank.number], before.get(rank.number, {})
        if not report.rdma:
            found.append(f"{rank.node} has no device in NCCL_IB_HCA of {FABRIC}")
            continue
        moved = {
            name: None if (then := earlier.get(name)) is None or now is None else max(0, now - then)
            for name, now in report.rdma.items()
        }
        said = "" if report.network in ("", NOTHING) else f" (NCCL says: Using network {report.network})"
        if any(moved.values()):
            if "Socket" in report.network.split(", "):
                found.append(f"{rank.node}: NCCL says: Using network {report.network}")
            elif report.beside and not said:
                found.append(
                    f"{rank.node}: bytes moved, which may be those of unit {', '.join(report.beside)} there, and NCCL "
                    "does not say which network it uses"
                )
        elif unread := [name for name, count in moved.items() if count is None]:
            found.append(f"{rank.node}: the counters of {', '.join(unread)} cannot be read{said}")
        else:
            found.append(f"{rank.node}: {', '.join(moved)} moved 0 bytes during a request{said}")
    return f"the ranks do not use RDMA: {'; '.join(found)}" if found else ""


def proven(after: Mapping[int, Any]) -> str:
    """Return what a start without a fault has proven of RDMA, as a clause. `after`: the reports of its ranks."""
    beside = sorted({name for report in after.values() for name in report.beside})
    if not beside:
        return "each rank moved bytes by RDMA"
    return (
        f"NCCL of each rank beside unit {', '.join(beside)} says that it uses RDMA, whose bytes may be of either unit"
    )
