"""Two tiers of tests. `make test` runs every test without the marker `soak` and a twentieth of those with it; `make
soak` runs all that have it.

The number of commits chooses the twentieth, so any twenty commits in a row run each soak test. Naming a test
(`file::test`), a keyword (`-k`) or the marker (`-m soak`) runs all soak tests that this selects. A test with
`soak(sampled=False)` needs more than `make test` has, and is in no twentieth; nor is a soak test of the virtual rack:
most take minutes, and a part with two of them would cost half as much again as one without. Files of the virtual rack
with `soak(turn=N)` take turns: one of fourteen commits in a row runs their other tests; with `soak(turn=N, of=3)` one
of three.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.scheduling import LAB

PARTS = 20
TURNS = 14


def part_of(nodeid: str) -> int:
    """Return the part of a test: the same on every machine and for every Python."""
    return zlib.crc32(nodeid.encode()) % PARTS


def selected(item: pytest.Item, commits: int) -> bool:
    """Return whether the run of a tree with so many commits has this soak test."""
    return all(_is_chosen(item.nodeid, marker.kwargs, commits) for marker in item.iter_markers("soak"))


def _is_chosen(nodeid: str, options: Mapping[str, Any], commits: int) -> bool:
    if "turn" in options:
        return bool(options["turn"] == commits % options.get("of", TURNS))
    in_a_part = options.get("sampled", True) and not nodeid.startswith(LAB)
    return bool(in_a_part and part_of(nodeid) == commits % PARTS)


def commits_of(folder: Path) -> int:
    """Return the number of commits of the checked-out tree; 0 outside a git checkout."""
    try:
        done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=folder, capture_output=True, text=True)
    except OSError:
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


def sampled(
    values: Iterable[object], of: int, first: int = 0, name: Callable[[Any], str] | None = None
) -> list[ParameterSet]:
    """Parameters of a test: one in `of`, from the place `first` on, is of the first tier, the others are soak tests."""
    return [
        pytest.param(value, id=name(value) if name else None, marks=() if place % of == first else pytest.mark.soak)
        for place, value in enumerate(values)
    ]


def crossed(
    rows: Iterable[object], columns: Sequence[object], name: Callable[[Any], str] | None = None
) -> list[ParameterSet]:
    """Every pair as parameters of a test: one pair of each row is of the first tier, with the columns in turn."""
    return [
        pytest.param(
            row,
            column,
            id=f"{name(row)}-{column}" if name else None,
            marks=() if place == number % len(columns) else pytest.mark.soak,
        )
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


class Tiers:
    """Deselects the soak tests of the other parts, and counts them for the last lines of the run."""

    def __init__(self, config: pytest.Config) -> None:
        worker = getattr(config, "workerinput", None)
        self.commits: int = worker["commits"] if worker else commits_of(config.rootpath)
        option = config.option
        self.everything = bool(option.keyword) or "soak" in option.markexpr or any("::" in one for one in config.args)
        self.ran = self.all = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Comes last, so that it counts what -m and -k have left."""
        soak = [item for item in items if item.get_closest_marker("soak")]
        others = [item for item in soak if not self.everything and not selected(item, self.commits)]
        self.all, self.ran = len(soak), len(soak) - len(others)
        if others:
            gone = set(others)
            items[:] = [item for item in items if item not in gone]
            config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """All workers of xdist run the same part, even if a commit is made while they start."""
        node.workerinput["commits"] = self.commits

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker of xdist reports its counts: the process that prints the summary collects nothing."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["soak"] = (self.ran, self.all)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker collects all tests, so that the counts of one are those of the run."""
        self.ran, self.all = getattr(node, "workeroutput", {}).get("soak", (self.ran, self.all))

    def lines(self) -> list[str]:
        """Return the line that says how many soak tests were selected and how many are left; none without any."""
        if not self.all:
            return []
        part, turn = self.commits % PARTS, self.commits % TURNS
        chosen = f"part {part} of {PARTS} and turn {turn} of {TURNS}, chosen by the number of commits"
        which = "all" if self.everything else chosen
        left = self.all - self.ran
        more = f"; {left} are left to `make soak`" if left else ""
        return [f"soak tests: {self.ran} of {self.all} selected ({which}){more}"]
