"""How fast a unit is, for `sparkrack serve tune`: the figures of the short measurement of `serve bench`, one a run."""

from __future__ import annotations

from statistics import geometric_mean

from core.model import Rack
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.screen import Screen
from serving.options import ServedUnit
from sparkrack.serving import bench_record
from sparkrack.serving.bench import ANSWER_SECONDS, CALL_SECONDS, BenchError, UnitHead, matrix_of, measure


def measure_speed(rack: Rack, unit: ServedUnit, screen: Screen, *, again: bool) -> float:
    """Measure a running unit once; return its tokens, or items of a unit that pools, a second.

    `again`: after another measurement. Raises BenchError when a measurement fails, or a request of it.
    """
    matrix, head = matrix_of(unit, quick=True), unit.ranks(rack.nodes)[0]
    try:
        with open_shells(rack, [head], CALL_SECONDS + ANSWER_SECONDS) as shells:
            record = measure(rack, UnitHead(unit, head, shells[head]), "quick", matrix, screen, again=again)
    except UnreachableError as fault:
        raise BenchError(str(fault)) from None
    if not record.complete:
        raise BenchError(next((one.reason for one in record.cases if one.state == "failed"), "nothing was measured"))
    return geometric_mean(
        one.output_throughput or one.item_throughput or 0.0 for one in record.cases if one.state == "measured"
    )


def usual_seconds(rack: Rack, unit: ServedUnit) -> float | None:
    """Return the seconds of one measurement by the baseline of `serve bench --quick`, None without one."""
    try:
        found = bench_record.read_baseline(rack.rack, unit.name, "quick")
    except bench_record.BaselineError:
        return None
    measured = [one for one in found.cases if one.output_throughput] if found else []
    return sum(one.requests * one.output_tokens / (one.output_throughput or 1) for one in measured) or None
