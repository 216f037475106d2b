"""From runs to tables: medians with their spread, and ratios within a round. Pure, but for `machine` and `write`."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import BenchError
from benchmarks.contenders import TOOLS

SCHEMA = "sparkrack.bench/1"
DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- generated: bench -->\n", "<!-- end -->"
TITLES = {
    "fresh": "From factory-fresh",
    "unchanged": "Without changes",
    "apart": "Without changes, on hosts that answer from a record",
}
Run = dict[str, Any]


@dataclass
class Results:
    """Measured results, and the machine."""

    machine: dict[str, str]
    runs: list[Run]

    @property
    def counts(self) -> list[int]:
        """The numbers of hosts."""
        return sorted({run["hosts"] for run in self.runs})

    def of(self, tool: str, hosts: int, state: str) -> list[Run]:
        """The runs of one tool, by round."""
        key = (tool, hosts, state)
        found = [run for run in self.runs if (run["tool"], run["hosts"], run["state"]) == key]
        return sorted(found, key=lambda run: run["round"])

    def text(self) -> str:
        """Serialized form."""
        return json.dumps({"schema": SCHEMA, "machine": self.machine, "runs": self.runs}, indent=1) + "\n"


def read(path: Path) -> Results:
    """Parse the output of `text`. Raises BenchError for anything else."""
    data = json.loads(path.read_text())
    if data.get("schema") != SCHEMA:
        raise BenchError(f"{path}: is not {SCHEMA}")
    return Results(data["machine"], data["runs"])


def spread(values: Iterable[float], digits: int) -> str:
    """The median, with the smallest and the largest where they differ in what is shown."""
    found = sorted(values)
    low, middle, high = (f"{value:.{digits}f}" for value in (found[0], statistics.median(found), found[-1]))
    return middle if low == high else f"{middle} ({low}-{high})"


def ratio(results: Results, tool: str, base: str, hosts: int, state: str) -> str:
    """Return the factor between the times of two tools, round by round; empty if one was not measured."""
    longer = results.of(tool, hosts, state)
    shorter = {run["round"]: run["wall"] for run in results.of(base, hosts, state)}
    found = [run["wall"] / shorter[run["round"]] for run in longer if run["round"] in shorter]
    return spread(found, 1) if found else "-"


COLUMNS: tuple[tuple[str, Callable[[Run], float], int], ...] = (
    ("wall s", lambda run: run["wall"], 2),
    ("CPU s", lambda run: run["cpu"], 2),
    ("memory MB", lambda run: run["peak"] / 1e6, 0),
    ("sessions / host", lambda run: run["sessions"] / run["hosts"], 1),
    ("CPU s of a host", lambda run: run["remote_cpu"] / run["hosts"], 2),
)


def table(results: Results) -> str:
    """All of it as Markdown: a table for each state, and one of how cost grows."""
    states = [state for state in TITLES if state != "apart" or any(run["state"] == state for run in results.runs)]
    parts = [_table_of_state(results, state) for state in states]
    return "\n".join([*parts, _table_of_growth(results), _list_machine(results)])


def _table_of_state(results: Results, state: str) -> str:
    based = state != "fresh"
    heads = [
        "hosts",
        "",
        *(head for head, _, _ in COLUMNS),
        "x sparkrack",
        *(["x connect"] if based else []),
    ]
    lines = [f"### {TITLES[state]}", "", _format_row(heads), _format_row(["---"] * len(heads))]
    for hosts in results.counts:
        for tool in TOOLS:
            runs = results.of(tool.name, hosts, state)
            if runs:
                cells = [spread(map(value, runs), digits) for _, value, digits in COLUMNS]
                bases = ["sparkrack", *(["connect"] if based else [])]
                ratios = ["1" if tool.name == base else ratio(results, tool.name, base, hosts, state) for base in bases]
                lines.append(_format_row([str(hosts), tool.title, *cells, *ratios]))
    return "\n".join([*lines, ""])


def _table_of_growth(results: Results) -> str:
    """Return the cost of one more host, between the smallest and each larger number."""
    first, *more = results.counts
    heads = ["without changes", *(f"{first} -> {hosts} hosts" for hosts in more)]
    lines = ["### One more host", "", "Wall s, CPU s of the tool, and MB of the tool, for each host more.", ""]
    lines += [_format_row(heads), _format_row(["---"] * len(heads))]
    for tool in TOOLS:
        base = results.of(tool.name, first, "unchanged")
        cells = [_growth_of_host(base, results.of(tool.name, hosts, "unchanged"), hosts - first) for hosts in more]
        if base and any(cell != "-" for cell in cells):
            lines.append(_format_row([tool.title, *cells]))
    return "\n".join([*lines, ""]) if more else ""


def _growth_of_host(few: list[Run], many: list[Run], hosts: int) -> str:
    if not (few and many):
        return "-"
    found = []
    for _, value, digits in COLUMNS[:3]:
        grown = statistics.median(map(value, many)) - statistics.median(map(value, few))
        found.append(f"{grown / hosts:.{digits + 1 if digits else 1}f}")
    return ", ".join(found)


def _format_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _list_machine(results: Results) -> str:
    lines = [f"- {name}: {value}" for name, value in results.machine.items()]
    if shares := [run["elsewhere"] * 100 for run in results.runs if "elsewhere" in run]:
        lines.append(f"- other processes used {spread(shares, 0)} % of the machine's CPU time during a run")
    return "\n".join(lines) + "\n"


def machine(root: Path, others: Path) -> dict[str, str]:
    """Return the machine and the versions."""
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"^MemTotal: +(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    asked = "from importlib.metadata import version as v; print(v('ansible-core'), v('mitogen'))"
    versions = subprocess.run([str(others / "python"), "-c", asked], capture_output=True, text=True).stdout.split()
    sshd = subprocess.run(["chroot", str(root), "ssh", "-V"], capture_output=True, text=True).stderr.split(",")[0]
    cores = len(os.sched_getaffinity(0))
    return {
        "machine": f"{cores} cores ({cpu[1].strip() if cpu else platform.machine()}), "
        f"{int(total[1]) // 1048576 if total else '?'} GiB, Linux {platform.release().split('-')[0]}",
        "sparkrack": f"{version('sparkrack')} on pyinfra {version('pyinfra')}, Python {platform.python_version()}",
        "compared with": f"ansible-core {versions[0]}, mitogen {versions[1]}",
        "targets": f"{sshd.strip()} (Debian)",
    }


def write(results: Results, folder: Path, others: Path) -> None:
    """results.json, results.md and plot.svg in a folder."""
    (folder / "results.json").write_text(results.text())
    (folder / "results.md").write_text(table(results))
    plot = Path(__file__).parent / "plot.py"
    command = [str(others / "python"), str(plot), str(folder / "results.json"), str(folder / "plot.svg")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"the plot cannot be drawn:\n{done.stderr[-600:]}")


def publish(results: Results, folder: Path) -> None:
    """Put results, plot and tables where the documentation has them."""
    (DOCS / "bench").mkdir(exist_ok=True)
    for name in ("results.json", "plot.svg"):
        (DOCS / "bench" / name).write_text((folder / name).read_text())
    page = DOCS / "evidence/bench.md"
    page.write_text(renewed(page.read_text(), table(results)))


def renewed(page: str, tables: str) -> str:
    """A page with these tables between its marks. Raises BenchError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError("docs/evidence/bench.md has no place for the tables")
    return f"{before}{begin}\n{tables}\n{end}{after}"
