"""The failure matrix: injects each failure of a served unit several times, and writes what followed into a page.

    python -m tests.serving.failure_matrix --runs 10 --docs

Needs root, for network namespaces. docs/evidence/serving-failures.md describes what is measured and how.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.serving.failure_cells import CELLS, REAL, Cell
from tests.serving.failure_run import Outcome, run

DOCS = Path(__file__).parents[2] / "docs"
PAGE, RECORD = DOCS / "evidence/serving-failures.md", DOCS / "bench/serving-failures.json"
SCHEMA = "sparkrack.serving-failures/1"
BEGIN, END = "<!-- generated: failures -->\n", "<!-- end -->"
HEADS = (
    "failure",
    "runs",
    "noticed, s",
    "limit",
    "all ended, s",
    "limit",
    "reported first",
    "then",
    "left behind",
    "load",
    "real engine, s",
)
Runs = dict[str, list[Outcome]]


def main(words: Sequence[str]) -> int:
    """Run the program. Returns its exit code: 1 when a failure ended otherwise than it must, or too late."""
    parser = argparse.ArgumentParser(prog="failure_matrix", description="Inject the failures of a served unit.")
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all")
    parser.add_argument(
        "--runs", type=int, default=10, help="injections of each; default: %(default)s; 0 reads the record"
    )
    parser.add_argument("--jobs", type=int, default=4, help="racks at the same time; default: %(default)s")
    parser.add_argument("--record", type=Path, default=RECORD, help="JSON of each injection; keeps other cells")
    parser.add_argument("--docs", action="store_true", help="renew the tables of docs/evidence/serving-failures.md")
    given = parser.parse_args(words)
    cells = [cell for cell in CELLS if cell.name in given.cells or not given.cells]
    if unknown := set(given.cells) - {cell.name for cell in cells}:
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(cell.name for cell in CELLS)}")
    if os.geteuid():
        parser.error("needs root, for network namespaces")
    found = read(given.record) if given.record.exists() else {}
    if given.runs:
        found |= {cell.name: [] for cell in cells}
    with ProcessPoolExecutor(given.jobs) as pool:
        # The slow ones first, so that none of them runs alone in the end.
        order = sorted(cells, key=lambda cell: -cell.gone_limit)
        asked = [pool.submit(_run_cell, cell.name) for _ in range(given.runs) for cell in order]
        for done in as_completed(asked):
            outcome = done.result()
            found[outcome.cell].append(outcome)
            text = f"{outcome.cell:22} noticed {outcome.noticed} s, gone {outcome.gone} s, load {outcome.load}"
            print(f"{time.strftime('%H:%M:%S')} {text} {'; '.join(outcome.faults)[:2000]}", flush=True)
            given.record.write_text(text_of(found))
    if given.docs:
        PAGE.write_text(renewed(PAGE.read_text(), tables(found)))
    outcomes = {cell: found.get(cell.name, []) for cell in cells}
    late = [line for cell, runs in outcomes.items() for line in broken(cell, runs)]
    print("\n".join(late) or "every limit holds")
    return 1 if late or any(outcome.faults for runs in outcomes.values() for outcome in runs) else 0


def _run_cell(name: str) -> Outcome:
    """Inject the failure of this name: a process of the pool takes a name, and no functions."""
    return run(next(cell for cell in CELLS if cell.name == name))


def read(path: Path) -> Runs:
    """Parse the record of earlier runs, without cells that no longer exist."""
    data = json.loads(path.read_text())
    names = {cell.name for cell in CELLS}
    assert data["schema"] == SCHEMA
    return {name: [Outcome(**one) for one in runs] for name, runs in data["runs"].items() if name in names}


def text_of(found: Runs) -> str:
    """The record of all runs, a line each."""
    order = [cell.name for cell in CELLS if cell.name in found]
    runs = (
        f"  {json.dumps(name)}: [\n" + ",\n".join(f"   {json.dumps(one.values)}" for one in found[name]) + "\n  ]"
        for name in order
    )
    machine = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": len(os.sched_getaffinity(0))}
    head = f' "schema": "{SCHEMA}",\n "machine": {json.dumps(machine)},\n "runs": {{\n'
    return "{\n" + head + ",\n".join(runs) + "\n }\n}\n"


def broken(cell: Cell, runs: Iterable[Outcome]) -> list[str]:
    """Return the limits that a run of the cell exceeded."""
    found = []
    for name, limit in (("noticed", cell.noticed), ("gone", cell.gone_limit)):
        worst = max((value for one in runs if (value := getattr(one, name)) is not None), default=0.0)
        if worst > limit:
            found.append(f"{cell.name}: {name} after {worst:g} s at worst, limit {limit:g} s")
    return found


def spread(values: Iterable[float | None], digits: int = 1) -> str:
    """Least, median and most of the values; one value alone, and `-` without any."""
    found = sorted(value for value in values if value is not None)
    if len(found) < 2:
        return f"{found[0]:.{digits}f}" if found else "-"
    return " / ".join(f"{value:.{digits}f}" for value in (found[0], statistics.median(found), found[-1]))


def tables(found: Runs) -> str:
    """Return the Markdown of all cells, measured or not."""
    rows = [HEADS, ("---",) * len(HEADS)]
    rows += [_row_of_cell(cell, found.get(cell.name, [])) for cell in CELLS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row_of_cell(cell: Cell, runs: list[Outcome]) -> tuple[str, ...]:
    if not runs:
        return (cell.event, "0", *["-"] * (len(HEADS) - 3), REAL.get(cell.name, "-"))
    reports = sorted({_remove_varying_values(one.detector) for one in runs if one.detector})
    loads = sorted(one.load for one in runs)
    left = sorted({text for one in runs for text in one.left})
    faults = sum(bool(one.faults) for one in runs)
    noticed, gone = (f"{limit:g}" if cell.detector else "-" for limit in (cell.noticed, cell.gone_limit))
    worst = [text.split(": ")[1].split(" after")[0] for text in broken(cell, runs)]
    return (
        cell.event,
        str(len(runs)),
        spread(one.noticed for one in runs),
        f"{noticed}{', not held' if 'noticed' in worst else ''}",
        spread(one.gone for one in runs),
        f"{gone}{', not held' if 'gone' in worst else ''}",
        "; ".join(reports) or "nothing",
        _describe_end(cell, runs) + (f"; {faults} otherwise" if faults else ""),
        ", ".join(left) or "nothing",
        f"{loads[0]:g} to {loads[-1]:g}" if len(loads) > 1 else f"{loads[0]:g}",
        REAL.get(cell.name, "-"),
    )


def _describe_end(cell: Cell, runs: list[Outcome]) -> str:
    if not cell.detector:
        return "as before"
    if cell.end[0] == "ready":
        return "ready again, 1 restart counted"
    return f"{cell.end[0]}: {cell.end[1]}"


def _remove_varying_values(text: str) -> str:
    """A report without the values that differ from run to run."""
    return re.sub(r"\|", "/", re.sub(r", result [a-z-]+", "", re.sub(r"(; left of the rank): .*", r"\1", text)))


def renewed(page: str, text: str) -> str:
    """Return the page with these tables between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE} has no place for the tables"
    return f"{before}{begin}\n{text}\n{end}{after}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: its namespaces are removed
    sys.exit(main(sys.argv[1:]))
