"""The bandwidth between nodes, as `sparkrack verify --bandwidth` measures it: all nodes at once, and one alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from core.model.role import role_named
from core.util.project_files import PACKAGES
from core.verify.measurements import Bandwidth
from core.verify.outcomes import Outcome
from core.verify.runner import run_checks
from roles.rdma.bandwidth_verdict import LOW
from sparkrack.accept.evaluate import not_shown, observed, refuted, unknown
from sparkrack.accept.load.part import LoadRun, Results, working
from sparkrack.accept.model import MachineResult

ALONE = 3
"""Times that one node measures alone."""
SMALLEST = 1.0
"""Gb/s. A smaller difference counts for nothing."""
Figures = Mapping[tuple[str, ...], float]
"""Gb/s of each test of a node, by what sends and who receives."""


# claim: rdma.bandwidth-borders, rdma.bandwidth-neighbours
def bandwidth(run: LoadRun) -> Results:
    """Measure every half of every node, then those of the first node alone."""
    if not run.rack.keeps("rdma"):
        return {}
    if busy := working(run.rack, run.nodes, containers=False):
        refused = [unknown(name, f"not tried: {reason}") for name, reason in busy.items()]
        return dict.fromkeys(("rdma.bandwidth-borders", "rdma.bandwidth-neighbours"), refused)
    together = _measured(run, run.nodes)
    sender = next((name for name in run.nodes if _figures(together[name])), "")
    alone = [_figures(_measured(run, [sender])[sender]) for _ in range(ALONE)] if sender else []
    return {
        "rdma.bandwidth-borders": list(_borders(together)),
        "rdma.bandwidth-neighbours": [_neighbours(sender, _figures(together[sender]), alone)] if sender else [],
    }


def _measured(run: LoadRun, nodes: Sequence[str]) -> dict[str, list[Outcome]]:
    """The outcomes of the tests by the node that sends."""
    checks = [PACKAGES / role_named("rdma").verify_file]
    found = run_checks(run.rack, checks, nodes, None, True, run.excluded, run.progress)
    # A session that did not come to its tests reports that, and measures nothing.
    return {name: [one for one in found if one.machine == name and (one.measured or one.unknown)] for name in nodes}


def _tests(outcomes: Sequence[Outcome]) -> list[Bandwidth]:
    return [value for one in outcomes for value in one.measured if isinstance(value, Bandwidth)]


def _figures(outcomes: Sequence[Outcome]) -> Figures:
    return {(*one.sender_devices, one.receiver): sum(one.gbps) for one in _tests(outcomes) if one.gbps}


def _borders(together: Mapping[str, Sequence[Outcome]]) -> Iterator[MachineResult]:
    tests = [one for outcomes in together.values() for one in _tests(outcomes)]
    # One slow half is slow. When no half of the rack reaches the border, and none has a known fault, the border is.
    wrong = bool(tests) and all(one.verdict == LOW.name for one in tests)
    for name, outcomes in together.items():
        own = _tests(outcomes)
        text = "; ".join(map(_text, own))
        if missing := [one.reason for one in own if not one.gbps] or [one.why for one in outcomes if one.unknown]:
            yield unknown(name, "; ".join(dict.fromkeys(missing)))
        elif not own:
            continue
        elif wrong:
            yield refuted(name, f"no half of the rack reaches its border: {text}")
        elif slow := [one for one in own if not one.good]:
            yield not_shown(name, f"{'; '.join(map(_text, slow))}; a rack whose links are sound shows it")
        else:
            yield observed(name, text)


def _text(one: Bandwidth) -> str:
    figures = " + ".join(f"{figure:.1f}" for figure in one.gbps)
    border = "" if one.least is None else f" (border {one.least:g})"
    return f"{'+'.join(one.sender_devices)} -> {one.receiver}: {figures} Gb/s{border}, {one.verdict}"


def _neighbours(sender: str, together: Figures, alone: Sequence[Figures]) -> MachineResult:
    """Compare one node with its neighbours at work and without."""
    right: list[str] = []
    wrong: list[str] = []
    for test, with_others in together.items():
        runs = [one[test] for one in alone if test in one]
        if len(runs) < ALONE:
            return unknown(sender, f"{'+'.join(test[:-1])} -> {test[-1]}: {len(runs)} of {ALONE} runs gave a figure")
        spread, fall = max(runs) - min(runs), min(runs) - with_others
        figures = ", ".join(f"{figure:.1f}" for figure in runs)
        text = f"{'+'.join(test[:-1])} -> {test[-1]}: {with_others:.1f} Gb/s, alone {figures}"
        (wrong if fall > max(spread, SMALLEST) else right).append(text)
    return refuted(sender, "; ".join(wrong)) if wrong else observed(sender, "; ".join(right))
