"""Run a proof: the verify files of all roles and of the switch, one pytest session for each machine, side by side."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sparkrack.fleet import Rack
from sparkrack.proof.outcome import Outcome
from sparkrack.proof.plugin import Proof
from sparkrack.proof.workers import side_by_side

TOP = Path(__file__).parent.parent.parent
MOST = 8
"""Sessions at a time. Each waits for its machine most of the time."""


def prove(
    rack: Rack,
    files: Iterable[Path],
    machines: Iterable[str],
    junit: Path | None,
    bandwidth: bool = False,
    excluded: Iterable[str] = (),
) -> list[Outcome]:
    """Prove `rack` by these verify files, limited to these machines; every outcome, machine by machine.

    `junit`: where to write the same as JUnit XML. `bandwidth`: measure what the fabric carries, too. `excluded`:
    machines that are not spoken to, not even as somebody's neighbour. An empty list means that nothing was proven.
    """
    apart = frozenset(excluded)
    paths, names = [str(file) for file in files], list(machines)
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        reports = [Path(folder) / f"{number}.xml" for number in range(len(names))]
        calls = [(rack, paths, name, report, bandwidth, apart) for name, report in zip(names, reports, strict=True)]
        outcomes = []
        for name, told in zip(names, side_by_side(session, calls, MOST), strict=True):
            outcomes += [broken(name, "the proof was ended before it was complete")] if told is None else told
        if junit:
            join(reports, junit)
    return outcomes


def broken(machine: str, why: str) -> Outcome:
    """A proof of a machine that is not whole: whatever else it found, this could not be told."""
    return Outcome(machine, "-", "-", passed=False, why=why, unknown=True)


def session(
    rack: Rack, files: list[str], machine: str, junit: Path, bandwidth: bool, excluded: frozenset[str] = frozenset()
) -> list[Outcome]:
    """One pytest session about one machine, in a process of its own."""
    nodes, switches = (frozenset({machine} & set(group)) for group in (rack.nodes, rack.switches))
    proof = Proof(rack, nodes, switches, bandwidth, excluded)
    # Nothing of the folder that the user stands in, or of the user's habits, may change what is proven.
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    arguments = ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:logging", "-c", "/dev/null"]
    # That plugin collects all garbage of the process twice (measured: 0.19 s of a session's 0.49 s) and warns of
    # exceptions in destructors, which are no outcomes.
    arguments += ["-p", "no:unraisableexception"]
    arguments += [f"--rootdir={TOP}", "--import-mode=importlib", "-o", "python_files=verify.py"]
    arguments += [f"--junitxml={junit}", "-o", f"junit_suite_name={machine}"]
    code = pytest.main([*files, *arguments], plugins=[proof])
    whole = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if not whole and all(outcome.passed or outcome.left_out for outcome in proof.outcomes):
        proof.outcomes.append(broken(machine, f"the proof ended early, pytest's exit {int(code)}"))
    return proof.outcomes


def join(reports: list[Path], into: Path) -> None:
    """One JUnit file of several: a suite for each machine."""
    suites = ElementTree.Element("testsuites", name="sparkrack")
    for report in reports:
        with suppress(OSError, ElementTree.ParseError):  # a session that was ended left none, or a part of one
            suites.extend(ElementTree.parse(report).getroot().iter("testsuite"))  # noqa: S314 - pytest wrote it
    into.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suites).write(into, encoding="utf-8", xml_declaration=True)
