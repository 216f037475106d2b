"""How often the tests of the virtual rack boot a node, and how often each verb is run there: a line of the summary."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.node import BOOTS

VERBS = ("plan", "apply", "drift", "verify", "rebuild", "reboot", "pyinfra")


def count(line: str) -> None:
    """Add a line to the file of this run, if it has one; the lab adds one for each boot."""
    if name := os.environ.get(BOOTS):
        with Path(name).open("a") as file:
            file.write(f"{line}\n")


def count_command(words: Sequence[str]) -> None:
    """Count a command that goes to the nodes, by its verb."""
    verb = words[1] if words[0] == "sparkrack" else words[0]
    if verb in VERBS:
        count(verb)


class LabCounts:
    """The plugin: all workers of a run write to one file, whose lines the summary counts."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Only the process that prints the summary makes the file; its workers inherit the variable."""
        if not hasattr(config, "workerinput"):
            self.file = Path(tempfile.mkstemp(prefix="sparkrack-boots-")[1])
            os.environ[BOOTS] = str(self.file)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print nothing where no virtual rack was used."""
        counted = Counter(line.split()[0] for line in self.file.read_text().splitlines())
        self.file.unlink()
        if counted:
            words = ", ".join(f"{counted[verb]} {verb}" for verb in ("boot", *VERBS) if counted[verb])
            terminalreporter.write_line(f"virtual racks: {words}")
