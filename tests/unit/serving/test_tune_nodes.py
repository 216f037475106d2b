"""What the nodes of a unit show during a trial, by the real journalctl over journals that the test writes."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkrack.serving.tune_judgement import cause_of
from sparkrack.serving.tune_nodes import TrialNodes
from tests.kernel_journal import GUARD, KernelJournal, needs_journal

XID = "NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus."
ENDED = "9 KiB of memory are available, less than the floor of 10 KiB: ended every container in sparkrack.slice"

pytestmark = needs_journal


class JournalNode(KernelJournal):
    """A node whose journal has the lines that were written to it."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        super().__init__(folder)
        self.journalctl(self.reader)

    def journalctl(self, script: str) -> None:
        place = self._bin / "journalctl"
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(stat.S_IRWXU)

    def run(self, command: str) -> Any:
        done = subprocess.run(
            ["sh", "-c", command],
            env=os.environ | {"PATH": f"{self._bin}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture
def node(tmp_path: Path) -> JournalNode:
    made = JournalNode(tmp_path / "n0")
    made.log("Linux version 7.0.0", 1_764_230_000)
    made.log(XID.replace("79", "43"), 1_764_230_001)
    return made


@pytest.fixture
def trial(node: JournalNode) -> TrialNodes:
    """A trial that has begun."""
    found = TrialNodes({"n0": node})  # type: ignore[dict-item] # of a shell it needs to run a command
    found.begin()
    assert found.unknown == ""
    assert found.left["n0"] > 0
    return found


def test_a_fault_is_seen_although_the_clock_is_set_back(node: JournalNode, trial: TrialNodes) -> None:
    node.log(XID, 1_764_230_000 - 3600)
    node.log("usb 1-1: new device", 1_764_230_000 - 3599)
    trial.end()
    assert (trial.kernel, trial.unknown) == (f"n0: {XID}", "")


def test_the_memory_guard_is_named_as_the_cause(node: JournalNode, trial: TrialNodes) -> None:
    """systemd takes the name of the guard out of the message: it is the identifier of the line."""
    node.log("armed again: 9 KiB of memory are available", 1_764_230_002, GUARD)
    node.log(ENDED, 1_764_230_003, GUARD)
    trial.end()
    assert (trial.kernel.split("; ")[-1], trial.unknown) == (f"n0: {GUARD}: {ENDED}", "")
    assert cause_of(None, 0, "", trial.kernel) == "memory"


def test_lines_of_before_the_trial_and_lines_without_a_fault_count_for_nothing(
    node: JournalNode, trial: TrialNodes
) -> None:
    node.log("usb 1-1: new device", 1_764_230_001)
    trial.ask_memory()
    trial.end()
    assert (trial.kernel, trial.unknown) == ("", "")


def test_a_log_that_has_lost_the_beginning_is_unknown(node: JournalNode, trial: TrialNodes) -> None:
    """Rotated away, or of another boot: journalctl itself takes the nearest line."""
    node.file.unlink()
    node.log("usb 1-1: new device", 1_764_230_090)
    trial.end()
    assert trial.unknown == "n0: the kernel's log has lost the line at which the trial began"


def test_a_log_of_another_boot_is_unknown(node: JournalNode, trial: TrialNodes) -> None:
    node.log("Linux version 7.0.0", 1_764_230_090, boot="f" * 32)
    trial.end()
    assert trial.unknown == "n0: the kernel's log has lost the line at which the trial began"


@pytest.mark.parametrize(("script", "why"), [("exit 0", "has no line, or cannot be read"), ("exit 1", "has no line")])
def test_a_log_without_a_line_is_unknown_at_the_beginning_and_at_the_end(
    node: JournalNode, script: str, why: str
) -> None:
    found = TrialNodes({"n0": node})  # type: ignore[dict-item]
    node.journalctl(script)
    found.begin()
    assert why in found.unknown
    node.journalctl(node.reader)
    found.ask_memory()
    found.end()
    assert found.unknown == "n0: it is unknown where its kernel's log was before the trial"
