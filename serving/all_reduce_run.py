"""Run the all-reduce of a unit on its nodes, for verify."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from core.ssh.client import Machine
from core.ssh.root_shell import UnreachableError
from core.verify.measurements import AllReduceMeasurement
from serving import all_reduce
from serving.desired import LockedUnit
from serving.launch import RankLaunch, launches
from serving.options import ServedUnit, served_units
from serving.shared_nodes import container_ceiling
from serving.unit_ports import master_port


class BusyError(Exception):
    """What uses the GPU of a node, so that nothing is measured there."""


class NotMeasuredError(Exception):
    """Why there is no result."""


@dataclass(frozen=True)
class Result:
    """The verdict, the record of it, and what is unknown beside it, a line each."""

    finding: all_reduce.Finding
    record: AllReduceMeasurement
    unknown: tuple[str, ...]


def measure(locked: LockedUnit, machines: Mapping[str, Machine], wire: all_reduce.Wire) -> Result:
    """Run an all-reduce over the ranks of a unit, keep its result if it is the best with this image, and judge it.

    Args:
        locked: the unit, its image and its rack.
        machines: its nodes, and perhaps others.
        wire: what was measured between its nodes.

    Raises:
        BusyError: a unit or another process uses the GPU of a node.
        NotMeasuredError: a rank has no result.
        UnreachableError: a node does not answer before a rank is begun.
    """
    rack, unit, ranks = locked.rack, locked.unit, locked.nodes
    _require_idle(locked, machines)
    runs = launches(rack, unit, locked.addresses, container_ceiling(rack, unit), locked.image_id)
    texts, unknown = _run_ranks(locked, runs, machines)
    try:
        found = all_reduce.all_reduce(texts)
    except ValueError as error:
        raise NotMeasuredError("; ".join((str(error), *unknown))) from None
    head, path = machines[ranks[0]], all_reduce.record_path(unit, runs[0].image)
    kept = None
    try:
        kept = all_reduce.kept_record(str(head.run(f"cat {path} 2>/dev/null").stdout), ranks)
        finding = all_reduce.judge(found, all_reduce.enough(rack, ranks), wire, kept)
        best = all_reduce.best_kept(kept)
        if finding.good and (best is None or found.gbytes > best[0]):
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            done = head.run(all_reduce.keep(path, all_reduce.record(unit, runs[0], ranks, found, when)))
            if done.rc:
                unknown += (f"{path} of {ranks[0]} cannot be written: {_last_line(str(done.stderr), done.rc)}",)
    except UnreachableError as error:
        unknown += (f"the best result with this image is unknown or is not kept: {error}",)
        finding = all_reduce.judge(found, all_reduce.enough(rack, ranks), wire, kept)
    return Result(finding, all_reduce.measured(locked, found, wire, kept, finding), unknown)


def _require_idle(locked: LockedUnit, machines: Mapping[str, Machine]) -> None:
    """Raise BusyError when anything uses the GPU of a node of the unit."""
    for name in locked.unit.ranks(locked.rack.nodes):
        asked = machines[name].run(all_reduce.busy(tuple(served_units(locked.rack))))
        if asked.rc:
            raise NotMeasuredError(f"{name} does not tell what uses its GPU: {str(asked.stderr).strip()[:200]}")
        lines = [line.strip() for line in str(asked.stdout).splitlines() if line.strip()]
        if not lines:
            continue
        if lines[0].startswith("unit sparkrack-"):
            running = lines[0].removeprefix("unit sparkrack-")
            raise BusyError(
                f"unit {running} runs on {name}; `sparkrack serve stop {running}`, then `sparkrack verify --only rdma "
                "--only serving --bandwidth`"
            )
        raise BusyError(f"a process uses the GPU of {name}: {lines[0][:80]}; end it")


def _run_ranks(
    locked: LockedUnit, runs: tuple[RankLaunch, ...], machines: Mapping[str, Machine]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what each rank printed, by node, and a line for each node that may have a container left."""
    left: tuple[str, ...] = ()
    try:
        texts = _read_ranks(locked, runs, machines)
    except (NotMeasuredError, UnreachableError) as error:
        left = _remove_containers(locked.unit, runs, machines)
        raise NotMeasuredError("; ".join((str(error), *left))) from None
    except BaseException:
        _remove_containers(locked.unit, runs, machines)
        raise
    return texts, _remove_containers(locked.unit, runs, machines)


def _read_ranks(locked: LockedUnit, runs: tuple[RankLaunch, ...], machines: Mapping[str, Machine]) -> dict[str, str]:
    """Run the ranks, and return what each printed, the head's first."""
    rack, unit = locked.rack, locked.unit
    port, first = master_port(served_units(rack), rack.nodes, unit), runs[0]
    head = str(locked.addresses[first.node])
    for run in runs[1:]:
        begun = machines[run.node].run(all_reduce.docker_run(run, unit, len(runs), head, port))
        if begun.rc:
            raise NotMeasuredError(f"docker of {run.node}: {_last_line(str(begun.stderr), begun.rc)}")
    done = machines[first.node].run(all_reduce.docker_run(first, unit, len(runs), head, port))
    texts = {first.node: f"{done.stderr}\n{done.stdout}"}
    for run in runs[1:]:
        texts[run.node] = str(machines[run.node].run(all_reduce.output(unit)).stdout)
    return texts


def _remove_containers(
    unit: ServedUnit, runs: tuple[RankLaunch, ...], machines: Mapping[str, Machine]
) -> tuple[str, ...]:
    """Remove the container of each node, all at once: a node that is silent keeps none of another one. Return a line
    for each node that does not confirm it."""

    def remove(node: str) -> str:
        try:
            done = machines[node].run(all_reduce.remove(unit))
        except UnreachableError as error:
            return error.why
        return _last_line(str(done.stderr), done.rc) if done.rc else ""

    with ThreadPoolExecutor(max_workers=16) as pool:
        reasons = pool.map(remove, (run.node for run in runs))
        return tuple(
            f"{all_reduce.container_name(unit)} of {run.node} may be left until it ends by itself: {reason}"
            for run, reason in zip(runs, reasons, strict=True)
            if reason
        )


def _last_line(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {code}"
