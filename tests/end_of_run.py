"""The last lines of a run: its time, its ten slowest files, and how many soak tests it left to `make soak`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from tests.tiers import Tiers

SLOWEST = 10
CACHE = "sparkrack/end_of_run"
"""Where pytest's cache keeps the lines below the time, for `tests/run_twice.py`."""


def time_line(seconds: float) -> str:
    """Return the line that says how long a run took."""
    return f"the run took {seconds // 60:.0f} min {seconds % 60:.0f} s"


def file_lines(files: Mapping[str, tuple[float, int]]) -> list[str]:
    """Return a line for each of the slowest files, given the seconds and the number of tests of each file."""
    slowest = sorted(files, key=lambda file: -files[file][0])[:SLOWEST]
    return [f"{files[file][0]:6.0f} s {files[file][1]:5} tests  {file}" for file in slowest]


class EndOfRun:
    """Adds up the seconds of each file: set-up, call and teardown of its tests, on whatever worker."""

    def __init__(self, config: pytest.Config, tiers: Tiers) -> None:
        self.config, self.tiers = config, tiers
        self.started = time.monotonic()
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Under xdist, the process that prints the summary gets the reports of all workers."""
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        self.tests[file].add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Print after pytest's own last line."""
        yield
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or hasattr(self.config, "workerinput"):
            return
        lines = []
        if len(self.seconds) > 1:
            lines = [
                "its slowest files:",
                *file_lines({file: (self.seconds[file], len(self.tests[file])) for file in self.seconds}),
            ]
        lines += self.tiers.lines()
        if lines:
            reporter.write_line("")
            for line in (time_line(time.monotonic() - self.started), *lines):
                reporter.write_line(line)
        cache = getattr(self.config, "cache", None)
        if cache is not None:
            cache.set(CACHE, lines)
