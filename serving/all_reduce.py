"""The all-reduce over the ranks of a unit: the containers that run it, what is enough, and the verdict. Pure.

Sources: "gate" is NVIDIA's own of spark_cluster_setup, 21.875 GB/s over links of 200G and 10 in a ring, with messages
of gigabytes; "report" is NVIDIA/dgx-spark-playbooks issue 102 (3.04 GB/s by a development build of NCCL over a healthy
wire, 23.74 by a release); "inferred" is a limit between two of them.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.model import Rack
from core.model.errors import printable_line
from core.util import resources
from core.verify.measurements import AllReduceMeasurement, Bandwidth
from serving.desired import LockedUnit
from serving.launch import UNIT_FILES, RankLaunch
from serving.options import ServedUnit

BYTES = 64 << 20
"""Of one all-reduce. Small on purpose: a test of 16 GB froze a node (report)."""
RANK_SECONDS = 150
"""After so long a rank ends itself; torch of an image takes up to 30 s to load."""
COMMAND_LIMIT = RANK_SECONDS + 60
"""Seconds that docker may take for the rank of the head, and that another rank holds what it printed."""
START_LIMIT = 60
"""Seconds that docker may take to begin a rank that is not waited for."""
ENDED = "ended"
"""A line of a rank that holds what it printed."""
CONTAINERS = "^/?sparkrack-[a-z0-9_]+-collective$"
"""Pattern of the names of all such containers, as docker's filter reads it."""
SHARE = 0.7
"""Of the speed of the slowest rank's links. Inferred: the gate asks for 0.875 of 200G with far larger messages; one
half alone gives 11 GB/s there, 0.44."""
RING_SHARE = 0.32
"""The same in a ring. Inferred: 0.8 of the gate's 10 GB/s, since messages are small."""
KEPT_SHARE = 0.85
"""Of the best result with this image, below which it is slower than it was (inferred)."""
MOST_GBPS = 200
"""Gbit/s of a node: both halves together; a second cable adds 5 % (reported)."""
RUNBOOK = "docs/runbooks/bandwidth.md#all-reduce"
FOLDER = "/var/lib/sparkrack/serve/collective"


@dataclass(frozen=True)
class AllReduce:
    """What the ranks measured: GB/s of bus bandwidth, NCCL's version, and the networks that each node's NCCL named."""

    gbytes: float
    nccl: str | None
    networks: Mapping[str, tuple[str, ...]]


def container_name(unit: ServedUnit) -> str:
    """Return the name of the containers."""
    return f"sparkrack-{unit.name}-collective"


def docker_run(launch: RankLaunch, unit: ServedUnit, ranks: int, head: str, port: int) -> str:
    """Return the shell text that runs a rank: as the unit's own, but for its name and its program, without its secrets.

    Args:
        launch: what the node runs for the unit.
        unit: the unit.
        ranks: the number of its ranks.
        head: the address of the first one.
        port: at which the ranks meet there.

    The rank of the head is waited for; each other one holds what it printed until it is read. docker removes each when
    it has ended, and each ends by itself: none is left also when nothing asks for it any more.
    """
    other = {"--name": container_name(unit), "--entrypoint": "python3"}
    secrets = {f"{UNIT_FILES / unit.name}.{ending}" for ending in ("key", "ray")}
    words: list[str] = []
    for place, word in enumerate(launch.docker):
        before = launch.docker[place - 1] if place else ""
        if word.partition(":")[0] in secrets:
            words.pop()
        else:
            words.append(other.get(before, word))
    wanted = {
        "rank": launch.rank,
        "ranks": ranks,
        "head": head,
        "port": port,
        "bytes": BYTES,
        "limit": RANK_SECONDS,
        "hold": COMMAND_LIMIT if launch.rank else 0,
        "backend": "nccl",
    }
    program = ("-c", resources.file_text("serving", "files/all_reduce.py"), json.dumps(wanted))
    seconds = COMMAND_LIMIT if launch.rank == 0 else START_LIMIT
    begin = ["timeout", "--kill-after=10", str(seconds), "docker", "run", *(["--detach"] if launch.rank else [])]
    return f"{_force_removal(unit)}; {shlex.join([*begin, *words, launch.image, *program])}"


def _force_removal(unit: ServedUnit) -> str:
    return f"timeout --kill-after=5 30 docker rm --force {container_name(unit)} >/dev/null 2>&1"


def remove(unit: ServedUnit) -> str:
    """Return the shell text that removes a container of it, and fails unless docker has none of this name then: docker
    may be removing it by itself, since its rank has ended."""
    listed = f"timeout --kill-after=5 20 docker ps --all --quiet --filter 'name=^/?{container_name(unit)}$'"
    return (
        f"{_force_removal(unit)}; n=0; while left=$({listed}) || exit 1; "
        '[ -n "$left" ] && [ $n -lt 10 ]; do n=$((n + 1)); sleep 0.5; done; '
        '[ -z "$left" ] || { echo "docker does not remove it" >&2; exit 1; }'
    )


def output(unit: ServedUnit) -> str:
    """Return the shell text that waits up to 20 s for the result of a rank of another node than the head, and prints
    what it printed."""
    logs = f"timeout --kill-after=5 20 docker logs {container_name(unit)} 2>&1"
    return (
        f"n=0; while text=$({logs}) && [ $n -lt 20 ] && ! printf '%s\\n' \"$text\" | grep -qx {ENDED}; "
        "do n=$((n + 1)); sleep 1; done; printf '%s\\n' \"$text\""
    )


def busy(units: Collection[str]) -> str:
    """Return the shell text that prints what uses the GPU of a node: containers of these units, and processes."""
    names = " ".join(f"--filter name=^/?sparkrack-{name}$" for name in units)
    return (
        f"docker ps {shlex.join(names.split())} --format 'unit {{{{.Names}}}}' && "
        "timeout 20 nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader"
    )


def parse_result(text: str) -> dict[str, Any]:
    """Return what a rank printed. Raises ValueError with its last words where that is not a result."""
    lines = [line for line in text.splitlines() if line.strip() not in ("", ENDED)]
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("gbytes"), float) and 0 < found["gbytes"] < math.inf:
            return found
    raise ValueError(printable_line(lines[-1].strip())[:200] if lines else "it printed nothing")


def all_reduce(texts: Mapping[str, str]) -> AllReduce:
    """Return the result of the ranks, from what each node's printed, the head's first. Raises ValueError, with each
    node that has no result: the one that is the cause is often not the first."""
    found, missing = {}, []
    for node, text in texts.items():
        try:
            found[node] = parse_result(text)
        except ValueError as error:
            missing.append(f"the rank on {node} has no result: {error}")
    if missing:
        raise ValueError("; ".join(missing))
    nccl = next(iter(found.values())).get("nccl")
    networks = {node: _list_networks(one.get("networks")) for node, one in found.items()}
    slowest = min(one["gbytes"] for one in found.values())
    return AllReduce(slowest, printable_line(nccl)[:40] if isinstance(nccl, str) else None, networks)


def _list_networks(found: object) -> tuple[str, ...]:
    """Return the networks in the result of a rank; what a container prints may be anything."""
    return tuple(printable_line(str(one))[:40] for one in found[:8]) if isinstance(found, list) else ()


def enough(rack: Rack, ranks: Sequence[str]) -> float:
    """Return the lowest healthy bus bandwidth (GB/s) of these nodes: a share of the links of the slowest one."""
    speeds = []
    for name in ranks:
        cables = [rack.cabling.cable_of(port) for port in rack.cabling.ports_of(name)]
        speeds.append(min(MOST_GBPS, sum(cable.gbps for cable in cables if cable is not None)))
    share = RING_SHARE if rack.topology == "ring" and len(ranks) > 2 else SHARE
    return min(speeds) / 8 * share


@dataclass(frozen=True)
class Wire:
    """What `ib_write_bw` gave between the nodes of a unit.

    `gbps`: Gbit/s of each half; empty: not measured. `least`: what is enough of the slowest one. `faults`: what is not
    healthy, or not measured, with its nodes. `good`: None where a part was not measured and none is bad.
    """

    gbps: tuple[float, ...]
    least: float | None
    faults: tuple[str, ...]
    good: bool | None

    @property
    def verdict(self) -> str:
        """Whether it is healthy, in words."""
        return "healthy" if self.good else ", ".join(self.faults) or "not measured"

    @property
    def words(self) -> str:
        """The figures and what is wrong, as a clause."""
        if not self.gbps:
            return "ib_write_bw between its nodes was not measured in this run"
        low, high = min(self.gbps), max(self.gbps)
        shown = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
        faults = f" ({', '.join(self.faults)})" if self.faults else ""
        return f"ib_write_bw between its nodes {shown} Gbit/s a half{faults}"


def wire_between(measured: Sequence[Bandwidth], ranks: Collection[str]) -> Wire:
    """Return what was measured between these nodes."""
    own = [one for one in measured if {one.sender, one.receiver} <= {*ranks}]
    figures = tuple(figure for one in own for figure in one.gbps)
    faults = tuple(dict.fromkeys(f"{one.sender} to {one.receiver}: {one.verdict}" for one in own if not one.good))
    # The sessions of other nodes may not have measured yet.
    missing = [rank for rank in ranks if own and all(rank not in (one.sender, one.receiver) for one in own)]
    faults += tuple(f"{rank}: not measured" for rank in missing)
    slow = any(one.good is False for one in own)
    enough_of = {min(one.gbps): one.least / len(one.halves) for one in own if one.gbps and one.least is not None}
    least = enough_of.get(min(figures)) if figures else None
    return Wire(figures, least, faults, good=False if slow else None if faults or not figures else True)


Slow = Literal["nothing", "wire", "all-reduce"]
"""Which is too slow."""


@dataclass(frozen=True)
class Finding:
    """The verdict.

    `words`: in one line. `good`: there is nothing to do. `slow`: which is too slow; None: unknown. `step`: what to do.
    """

    words: str
    good: bool
    slow: Slow | None
    step: str = ""


def judge(found: AllReduce, least: float, wire: Wire, kept: Mapping[str, Any] | None) -> Finding:
    """Return the verdict.

    Args:
        found: what the ranks measured.
        least: the lowest healthy bus bandwidth (GB/s).
        wire: what was measured between their nodes.
        kept: the best result with this image, in the form of `record`.
    """
    shown = ", ".join(all_networks(found)) or "an unknown network"
    line = f"all-reduce of 64 MiB {found.gbytes:.1f} GB/s by NCCL {found.nccl or 'of unknown version'} over {shown}; "
    line += wire.words
    slow: dict[bool | None, Slow] = {True: "all-reduce", False: "wire"}
    by_socket = [node for node, names in found.networks.items() if "Socket" in names]
    if by_socket:
        step = (
            f"NCCL of {', '.join(by_socket)} uses sockets instead of RDMA: look at /dev/infiniband in the container "
            f"and at NCCL_IB_HCA ({RUNBOOK})"
        )
        return Finding(f"{line}: {step}", good=False, slow="all-reduce", step=step)
    if found.gbytes < least:
        step = {
            True: "the wire is healthy and NCCL is slow: take an image with a released build of NCCL",
            False: "the wire is slow: mend that first",
            None: "measure the wire, too: `sparkrack verify --only rdma --only serving --bandwidth`",
        }[wire.good]
        words = f"{line}; at least {least:.1f} GB/s are expected: {step} ({RUNBOOK})"
        return Finding(words, good=False, slow=slow.get(wire.good), step=f"{step} ({RUNBOOK})")
    best = best_kept(kept)
    if best and found.gbytes < best[0] * KEPT_SHARE:
        step = f"look at what else runs, and restart the nodes ({RUNBOOK})"
        words = f"{line}; with this image it was {best[0]:.1f} GB/s on {best[1]}: {step}"
        return Finding(words, good=False, slow=slow.get(wire.good), step=step)
    return Finding(line, good=True, slow=(slow | {True: "nothing"}).get(wire.good))


def all_networks(found: AllReduce) -> tuple[str, ...]:
    """Return the networks that NCCL named, each once."""
    return tuple(dict.fromkeys(name for names in found.networks.values() for name in names))


def best_kept(kept: Mapping[str, Any] | None) -> tuple[float, str] | None:
    """Return GB/s and time of the best result with an image, from its record; None where it has none."""
    best = kept.get("gbytes") if kept else None
    return (best, printable_line(str(kept.get("measured")))[:20]) if kept and isinstance(best, float) else None


def not_measured(rack: Rack, unit: ServedUnit, wire: Wire, reason: str) -> AllReduceMeasurement:
    """Return the record of an all-reduce that has no result. `reason`: why."""
    ranks = unit.ranks(rack.nodes)
    return AllReduceMeasurement(
        name=unit.name,
        nodes=tuple(ranks),
        image=unit.image,
        image_id=None,
        size=BYTES,
        gbytes=None,
        least=enough(rack, ranks),
        best=None,
        best_when=None,
        nccl=None,
        networks=(),
        wire=(min(wire.gbps), max(wire.gbps)) if wire.gbps else (),
        wire_least=wire.least,
        wire_verdict=wire.verdict,
        wire_good=wire.good,
        slow="wire" if wire.good is False else None,
        good=None,
        reason=printable_line(reason),
    )


def measured(
    locked: LockedUnit, found: AllReduce, wire: Wire, kept: Mapping[str, Any] | None, finding: Finding
) -> AllReduceMeasurement:
    """Return the record of a result and its verdict; the arguments are those of `judge`."""
    best = best_kept(kept) or (None, None)
    return not_measured(locked.rack, locked.unit, wire, finding.step).model_copy(
        update={
            "image_id": locked.image_id,
            "gbytes": found.gbytes,
            "best": best[0],
            "best_when": best[1],
            "nccl": found.nccl,
            "networks": all_networks(found),
            "slow": finding.slow,
            "good": finding.good,
        }
    )


def record_path(unit: ServedUnit, image: str) -> str:
    """Return the file of the head with the best result of a unit with one image."""
    return f"{FOLDER}/{unit.name}.{image.removeprefix('sha256:')[:12]}.json"


def record(unit: ServedUnit, launch: RankLaunch, ranks: Sequence[str], found: AllReduce, measured: str) -> str:
    """Return the record of a result. `measured`: when, as text."""
    return json.dumps(
        {
            "unit": unit.name,
            "image": launch.image,
            "ranks": list(ranks),
            "gbytes": round(found.gbytes, 3),
            "nccl": found.nccl,
            "networks": {node: list(names) for node, names in found.networks.items()},
            "measured": measured,
        }
    )


def keep(path: str, content: str) -> str:
    """Return the shell text that writes a record."""
    return f"install -d -m 755 {FOLDER} && printf '%s\\n' {shlex.quote(content)} > {path}.new && mv {path}.new {path}"


def kept_record(text: str, ranks: Sequence[str]) -> dict[str, Any] | None:
    """Return the record in the text of a file; None where it is none, or of other nodes."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("ranks") == list(ranks) else None
