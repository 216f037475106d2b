"""Draw how long each tool takes for how many hosts: `python plot.py RESULTS.json PLOT.svg`.

Runs in the environment of what is compared, which has matplotlib; stands alone for that reason.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "sparkrack"  # the same results give the same bytes
from matplotlib import pyplot  # noqa: E402

STATES = {"fresh": "from factory-fresh", "unchanged": "without changes"}


def main(results: Path, picture: Path) -> None:
    """Two panels, both axes logarithmic; the bars are the smallest and the largest of the rounds."""
    data = json.loads(results.read_text())
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in data["runs"]:
        found[run["state"], run["tool"]][run["hosts"]].append(run["wall"])
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    tools = list(dict.fromkeys(run["tool"] for run in data["runs"]))
    for panel, (state, title) in zip(panels, STATES.items(), strict=True):
        for number, tool in enumerate(tools):
            walls = found[state, tool]
            if not walls:
                continue
            hosts = sorted(walls)
            middle = [statistics.median(walls[count]) for count in hosts]
            below = [m - min(walls[count]) for m, count in zip(middle, hosts, strict=True)]
            above = [max(walls[count]) - m for m, count in zip(middle, hosts, strict=True)]
            panel.errorbar(hosts, middle, [below, above], label=tool, color=f"C{number}", marker="o", capsize=3)
        counts = sorted({run["hosts"] for run in data["runs"]})
        panel.set(xscale="log", yscale="log", title=title, xlabel="hosts", xticks=counts)
        panel.set_xticklabels(map(str, counts))
        panel.minorticks_off()
        panel.grid(visible=True, which="major", alpha=0.3)
    panels[0].set_ylabel("seconds, wall clock")
    panels[1].legend(loc="upper left")
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
