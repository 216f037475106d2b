"""What `sparkrack serve status` found, as a table, with what is to be known of each unit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from core.model.errors import printable_line
from core.util.tables import print_sentence, print_whole
from sparkrack.serving.coordinator import SERVING
from sparkrack.serving.unit_status import ServeStatus, StartPhase, UnitStatus
from sparkrack.status.render import span

_FIGURES = {
    "gates_s": "gates",
    "ready_s": "start to ready",
    "completion_s": "latest completion",
    "embedding_s": "latest embeddings",
    "ranking_s": "latest ranking",
}
_WENT_BACK = "`serve recreate` went back to it, and rack.yaml declares another one"
_VERBS = {"up": "start", "down": "stop"}


def show_serve_status(now: ServeStatus, *, whole: bool, quiet: bool) -> None:
    """Print the table, what is to be known of each unit, and a last line. `whole`: each rank, whatever its state."""
    console = Console(highlight=False, markup=False)
    if not quiet:
        table = Table(box=None, pad_edge=False)
        for title in ("unit", "desired", "state", "for", "generation", "ranks", "restarts"):
            table.add_column(title, no_wrap=True)
        for one in now.units:
            table.add_row(
                one.unit,
                one.desired_state,
                one.state if one.as_desired else f"{one.state}!",
                "-" if one.seconds is None else span(int(one.seconds)),
                "-" if one.generation is None else str(one.generation),
                _count_ranks(one),
                f"{'?' if one.restarts.used is None else one.restarts.used}/{one.restarts.allowed}",
            )
        print_whole(console, table)
    for one in now.units:
        if not quiet or not one.as_desired or one.files in ("previous", "other") or one.files_unknown:
            for line in _describe_unit(one, whole=whole):
                print_sentence(console, printable_line(line))
    for slot in now.slots:
        if slot.reason:
            print_sentence(console, printable_line(f"slot {slot.slot}: {slot.reason}"))
    wrong, unknown = (sum(one.as_desired is value for one in now.units) for value in (False, None))
    count = len(now.units)
    counts = f"{count - wrong - unknown} as desired, {wrong} not as desired, {unknown} unknown"
    print_sentence(console, f"{count} unit{'' if count == 1 else 's'}: {counts}")


def _count_ranks(one: UnitStatus) -> str:
    """Return how many ranks have each state: "2 running", "1 running, 1 unknown"."""
    states = [rank.state for rank in one.ranks]
    return printable_line(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))) or "-"


def _describe_unit(one: UnitStatus, *, whole: bool) -> Iterator[str]:
    reason = one.reason if one.state != "held" or not one.failed_gates else "a gate failed"
    yield f"{one.unit}: {one.state}: {reason}"
    for node, gate in one.failed_gates.items():
        yield f"{one.unit}: {node}: gate: {gate}"
    if one.asked and one.asked != one.desired_state:
        declared = f"rack.yaml has state: {one.desired_state}"
        yield f"{one.unit}: {declared}, and the latest command was to {_VERBS[one.asked]} it"
    if one.files == "previous":
        verb = "serves" if one.state in SERVING else "has"
        which = f"the files of generation {one.previous}" if one.previous else "the files of an unknown generation"
        yield f"{one.unit}: {verb} its previous version, {which}: {_WENT_BACK}"
    elif one.files == "other":
        yield f"{one.unit}: has other files than rack.yaml declares; `sparkrack drift` shows which"
    elif one.files_unknown:
        yield f"{one.unit}: whether its files are those of rack.yaml is unknown: {one.files_unknown}"
    # In a state in which no rank is to run, one that is not idle has a detail: what is left of it.
    left = one.state not in SERVING and any(rank.detail and rank.state != "idle" for rank in one.ranks)
    if whole or left or len({rank.state for rank in one.ranks}) > 1:
        for rank in one.ranks:
            heard = "no report" if rank.age is None else f"report {rank.age:.0f} s ago"
            detail = f": {rank.detail}" if rank.detail else ""
            yield f"{one.unit}: {rank.node} (rank {rank.rank}): {rank.state}, {heard}{detail}"
    if figures := [f"{name} {one.figures[key]:g} s" for key, name in _FIGURES.items() if key in one.figures]:
        yield f"{one.unit}: {', '.join(figures)}"
    if one.phases and (whole or one.state == "starting"):
        now = datetime.now(UTC)
        yield f"{one.unit}: start: {', '.join(_describe_phase(phase, one, now) for phase in one.phases)}"


def _describe_phase(phase: StartPhase, unit: UnitStatus, now: datetime) -> str:
    """Return a phase of a start with its seconds, or with those since its begin, in words."""
    if phase.seconds is not None:
        return f"{phase.phase} {phase.seconds:g} s"
    if phase.begin is None or unit.state not in ("gating", "starting"):
        return f"{phase.phase} unknown"
    return f"{phase.phase} for {max(0.0, (now - phase.begin).total_seconds()):.0f} s"
