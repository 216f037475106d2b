"""Run a verification: the verify files of all roles and of the switch, one pytest session for each host, in
parallel.
"""

from __future__ import annotations

import os
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from core.model import Rack
from core.util.debug_log import inherit
from core.util.process_pool import map_processes
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.project_files import PACKAGES
from core.verify.outcomes import Outcome
from core.verify.plugin import VerifyPlugin, WatchForwarding, unwatched

MAX_SESSIONS = 8
"""Sessions at a time. Each waits for its machine most of the time."""
_NO_PLUGINS = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
PROGRESS_SECONDS = 0.3
"""Interval in seconds at which the reports of the sessions are read."""


def run_checks(
    rack: Rack,
    files: Iterable[Path],
    machines: Iterable[str],
    junit: Path | None,
    bandwidth: bool = False,
    excluded: Iterable[str] = (),
    progress: ProgressObserver = NO_PROGRESS,
    watch_forwarding: WatchForwarding = unwatched,
) -> list[Outcome]:
    """Verify `rack` with these verify files, limited to these hosts, and return every outcome, host by host.

    `junit`: path for the same as JUnit XML. `bandwidth`: measure the bandwidth of the fabric, too. `excluded`: hosts
    that are not contacted, not even as a neighbour of another host. `progress`: observer of each host's checks.
    `watch_forwarding`: watches the counters of switches during a measurement. An empty list means that nothing was
    verified.
    """
    apart = frozenset(excluded)
    files, names = list(files), list(machines)
    paths = [str(file) for file in files]
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        reports = [Path(folder) / f"{number}.xml" for number in range(len(names))]
        steps = Path(folder) / "progress"
        calls = [
            (rack, paths, name, report if junit else None, bandwidth, apart, steps, watch_forwarding)
            for name, report in zip(names, reports, strict=True)
        ]
        outcomes = []
        progress.phase("verify", names)
        with _follow_steps(steps, progress):
            results = map_processes(session, calls, MAX_SESSIONS, _modules_of_checks(files))
        for name, found in zip(names, results, strict=True):
            outcomes += (
                [incomplete_outcome(name, "the verification was interrupted before it was complete")]
                if found is None
                else found
            )
        if junit:
            join(reports, junit)
    return outcomes


def _modules_of_checks(files: list[Path]) -> list[str]:
    """Return the modules of verify files of this program. Each session reads the file itself, by pytest; what the file
    imports is loaded once."""
    ours = [file.relative_to(PACKAGES).with_suffix("") for file in files if file.is_relative_to(PACKAGES)]
    return [".".join(file.parts) for file in ours]


def incomplete_outcome(machine: str, why: str) -> Outcome:
    """Return the outcome of an incomplete verification of a host: its remaining results are unknown."""
    return Outcome(machine, "-", "-", passed=False, why=why, unknown=True)


@contextmanager
def _follow_steps(steps: Path, progress: ProgressObserver) -> Iterator[None]:
    """Hand on what the sessions append to a file during the block. A file, since a session that is killed in the middle
    of a write to a shared queue would block the others."""
    steps.touch()
    over = threading.Event()

    def follow() -> None:
        with steps.open(encoding="utf-8") as lines:
            ended = False
            while not ended:
                ended = over.wait(PROGRESS_SECONDS)  # and then once more: the last lines
                for line in lines:
                    with suppress(ValueError):  # a line that a full disk has cut off
                        machine, role, number, total = line.split()
                        if role == "-":
                            progress.finish(machine)
                        else:
                            progress.step(machine, role, int(number), int(total))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def session(
    rack: Rack,
    files: list[str],
    machine: str,
    junit: Path | None,
    bandwidth: bool,
    excluded: frozenset[str] = frozenset(),
    steps: Path | None = None,
    watch_forwarding: WatchForwarding = unwatched,
) -> list[Outcome]:
    """One pytest session about one machine, in a process of its own.

    `junit`: path for its outcomes as JUnit XML, with a traceback of each failure, which costs most of the CPU time of a
    check that fails. `steps`: the file to which it appends its progress, in a private folder in which all sessions
    share answers.
    """
    inherit()

    def step(role: str, number: int, total: int) -> None:
        with suppress(OSError):  # progress is not a result
            line = f"{machine} {role} {number} {total}\n".encode()
            # One write to the end of the file, so that the lines of several sessions do not mix.
            place = os.open(steps or os.devnull, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(place, line)
            finally:
                os.close(place)

    nodes, switches = (frozenset({machine} & set(group)) for group in (rack.nodes, rack.switches))
    folder = steps.parent if steps else None
    proof = VerifyPlugin(rack, nodes, switches, bandwidth, excluded, step, folder, watch_forwarding)
    arguments = ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:logging", "-c", "/dev/null"]
    # That plugin collects all garbage of the process twice (measured: 0.19 s of a session's 0.49 s) and warns of
    # exceptions in destructors, which are not outcomes.
    arguments += ["-p", "no:unraisableexception"]
    arguments += [f"--rootdir={PACKAGES}", "--import-mode=importlib", "-o", "python_files=verify.py"]
    if junit:
        arguments += [f"--junitxml={junit}", "-o", f"junit_suite_name={machine}"]
    with _own_environment():
        code = pytest.main([*files, *arguments], plugins=[proof])
    whole = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if not whole and all(outcome.passed or outcome.skipped for outcome in proof.outcomes):
        proof.outcomes.append(incomplete_outcome(machine, f"the proof ended early, pytest's exit {int(code)}"))
    step("-", 0, 0)
    return proof.outcomes


@contextmanager
def _own_environment() -> Iterator[None]:
    """Let neither the user's settings nor a plugin of another package change the result in the block."""
    kept = {name: os.environ.pop(name, None) for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", _NO_PLUGINS)}
    os.environ[_NO_PLUGINS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_NO_PLUGINS)
        os.environ.update({name: value for name, value in kept.items() if value is not None})


def join(reports: list[Path], into: Path) -> None:
    """One JUnit file of several: a suite for each machine."""
    suites = ElementTree.Element("testsuites", name="sparkrack")
    for report in reports:
        with suppress(OSError, ElementTree.ParseError):  # a session that was ended left none, or a part of one
            suites.extend(ElementTree.parse(report).getroot().iter("testsuite"))  # noqa: S314 - pytest wrote it
    into.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suites).write(into, encoding="utf-8", xml_declaration=True)
