"""Run the all-reduce of a unit on its nodes, for verify."""

from __future__ import annotations

import time
from collections.abc import Mapping

from core.ssh.client import Machine
from core.verify.fabric_use import FabricUse
from serving import all_reduce
from serving.desired import LockedUnit
from serving.launch import RankLaunch, launches
from serving.options import served_units
from serving.shared_nodes import container_ceiling
from serving.unit_ports import master_port


class BusyError(Exception):
    """What uses the GPU of a node, so that nothing is measured there."""


class NotMeasuredError(Exception):
    """Why there is no result."""


def measure(locked: LockedUnit, machines: Mapping[str, Machine], fabric_use: FabricUse) -> all_reduce.Finding:
    """Run an all-reduce over the ranks of a unit, keep its result if it is the best with this image, and judge it.

    Raises:
        BusyError: a unit or another process uses the GPU of a node.
        NotMeasuredError: a rank has no result.
        UnreachableError: a node does not answer.
    """
    rack, unit = locked.rack, locked.unit
    ranks = unit.ranks(rack.nodes)
    _require_idle(locked, machines)
    runs = launches(rack, unit, locked.addresses, container_ceiling(rack, unit), locked.image_id)
    texts = _run_ranks(locked, runs, machines)
    try:
        found = all_reduce.all_reduce(texts)
    except ValueError as error:
        raise NotMeasuredError(error) from None
    head, path = machines[ranks[0]], all_reduce.record_path(unit, runs[0].image)
    kept = all_reduce.kept_record(str(head.run(f"cat {path} 2>/dev/null").stdout), ranks)
    wires = all_reduce.wire_words(fabric_use.measured(), ranks)
    finding = all_reduce.judge(found, all_reduce.enough(rack, ranks), wires, kept)
    if finding.good and (kept is None or found.gbytes > float(kept.get("gbytes") or 0)):
        measured = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        done = head.run(all_reduce.keep(path, all_reduce.record(unit, runs[0], ranks, found, measured)))
        if done.rc:
            raise NotMeasuredError(f"{path} of {ranks[0]} cannot be written: {str(done.stderr).strip()[:200]}")
    return finding


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


def _run_ranks(locked: LockedUnit, runs: tuple[RankLaunch, ...], machines: Mapping[str, Machine]) -> dict[str, str]:
    """Return what each rank printed, by node. No container is left."""
    rack, unit = locked.rack, locked.unit
    port, first = master_port(served_units(rack), rack.nodes, unit), runs[0]
    head = str(locked.addresses[first.node])
    texts: dict[str, str] = {}
    try:
        for run in runs[1:]:
            begun = machines[run.node].run(all_reduce.docker_run(run, unit, len(runs), head, port))
            if begun.rc:
                raise NotMeasuredError(f"docker of {run.node}: {_last_line(str(begun.stderr), begun.rc)}")
        done = machines[first.node].run(all_reduce.docker_run(first, unit, len(runs), head, port))
        texts[first.node] = done.stdout if done.rc == 0 else str(done.stderr)
        for run in runs[1:]:
            shown = machines[run.node].run(all_reduce.output(unit))
            texts[run.node] = f"{shown.stderr}\n{shown.stdout}"
    finally:
        for run in runs:
            machines[run.node].run(all_reduce.remove(unit))
    return texts


def _last_line(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {code}"
