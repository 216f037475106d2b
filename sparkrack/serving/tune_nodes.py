"""What the nodes of a unit show during a trial of `sparkrack serve tune`: memory that is left, and faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.node_shells import ScriptError, SilentNodeError, open_shells, script_output
from core.ssh.root_shell import RootShell
from core.util import resources
from serving.options import ServedUnit

ANSWER_SECONDS = 20
EVERY_SECONDS = 2.0
"""Seconds between two questions for the memory that is left."""


class TrialNodes:
    """The nodes of a unit during one trial.

    `left`: the least GiB that were available on each. `kernel`: after the trial, the lines of the kernels' logs since
    it began. `unknown`: why a node gave no answer at the latest question; empty when each has answered. `silent`: why a
    node could not be asked at some time of the trial, by node.
    """

    def __init__(self, shells: Mapping[str, RootShell]) -> None:
        self._shells = shells
        self._script = resources.shell_text("sparkrack.serving", "files/tune-node.sh")
        self._begun: dict[str, str] = {}
        self.left: dict[str, float] = {}
        self.silent: dict[str, str] = {}
        self.kernel = self.unknown = ""

    def begin(self) -> None:
        """Ask each node where its kernel's log is before the trial."""
        self._ask_nodes(dict.fromkeys(self._shells, "begin"))

    def ask_memory(self) -> None:
        """Ask each node for the memory that is left."""
        self._ask_nodes(dict.fromkeys(self._shells, ""))

    def end(self) -> None:
        """Ask each node for the lines of its kernel's log since the trial began; a node without a begin is unknown."""
        self._ask_nodes({node: self._begun.get(node, "") for node in self._shells})
        missing = [
            f"{node}: it is unknown where its kernel's log was before the trial"
            for node in self._shells
            if node not in self._begun
        ]
        self.unknown = "; ".join(filter(None, (self.unknown, *missing)))

    def _ask_nodes(self, words: Mapping[str, str]) -> None:
        found, unknown = [], []
        for node, word in words.items():
            try:
                answer = script_output(self._shells, node, "tune-node", self._script, [word]).splitlines()
            except ScriptError as fault:
                unknown.append(str(fault))
                if isinstance(fault, SilentNodeError):
                    self.silent[node] = str(fault)
                continue
            if not answer or not re.fullmatch(r"[0-9]{1,15}", answer[0]):
                unknown.append(f"{node}: /proc/meminfo has no MemAvailable")
                continue
            gib = int(answer[0]) / 1024**2
            self.left[node] = min(gib, self.left.get(node, gib))
            if word == "begin":
                self._begun[node] = answer[1]
            else:
                found += [printable_line(f"{node}: {one}") for one in answer[1:] if one]
        self.kernel, self.unknown = "; ".join(found), "; ".join(unknown)


@contextmanager
def watched_nodes(rack: Rack, unit: ServedUnit) -> Iterator[TrialNodes]:
    """Ask the nodes of a unit every two seconds during the block, and for their kernels' logs after it."""
    with open_shells(rack, unit.ranks(rack.nodes), ANSWER_SECONDS) as shells:
        nodes, ended = TrialNodes(shells), Event()
        nodes.begin()

        def ask_until_ended() -> None:
            while not ended.wait(EVERY_SECONDS):
                nodes.ask_memory()

        thread = Thread(target=ask_until_ended, daemon=True)
        thread.start()
        try:
            yield nodes
        finally:
            ended.set()
            thread.join()
            nodes.end()
