"""The previous version of a unit: the files of its last good start, which each of its nodes keeps, and puts back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import join
from typing import NamedTuple

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from core.util.scrub import scrub
from serving.options import ServedUnit

_LISTED = re.compile(r"([0-9]{1,18}) (\S+) (sha256:[0-9a-f]{64}|-) (same|other|absent)")


class PreviousVersionError(Exception):
    """The previous version cannot be kept, found or put back. The text is one printable clause."""


class KeptVersion(NamedTuple):
    """A version that a node keeps. `nodes`: of the unit then. `state`: same, other or absent, as the script prints."""

    generation: int
    nodes: str
    image: str
    state: str


class PreviousVersion:
    """What the nodes of a unit keep of it, asked over root shells. A script of the role does it on each node."""

    def __init__(self, rack: Rack, unit: ServedUnit, shells: Mapping[str, RootShell]) -> None:
        self.unit, self._shells = unit, shells
        self.nodes = unit.ranks(rack.nodes)
        self._script = resources.file_text("sparkrack.serving", "files/serve-previous.sh")

    def keep(self, generation: int) -> None:
        """Keep the present files as those of a generation that a completion has proven. Raises PreviousVersionError."""
        # What was kept before goes when all nodes have the new version: one that all nodes have is there at any time.
        self._run_on_each_node("keep", str(generation))
        self._run_on_each_node("forget", str(generation))

    def find(self, *, changed: bool) -> int:
        """Return the generation to go back to: the latest that each node keeps.

        Args:
            changed: whether the present files are to be replaced even if they have the same content.

        Raises:
            PreviousVersionError: there is none, or a node no longer has its image, or the present files are no other
            ones.
        """
        kept = {node: self._list_kept_versions(node) for node in self.nodes}
        common = set.intersection(*(set(found) for found in kept.values()))
        if not common:
            without = [node for node, found in kept.items() if not found]
            what = f"{', '.join(without)} keeps none" if without else "the nodes keep different generations"
            raise PreviousVersionError(f"there is no previous version: {what}")
        latest = {node: found[max(common)] for node, found in kept.items()}
        if others := sorted({one.nodes for one in latest.values()} - {",".join(self.nodes)}):
            raise PreviousVersionError(f"its previous version was on other nodes: {printable_line(others[0])}")
        for node, one in latest.items():
            if one.state == "absent":
                raise PreviousVersionError(f"{node} no longer has {one.image}, the image of its previous version")
        if not changed and all(one.state == "same" for one in latest.values()):
            raise PreviousVersionError("its files are those of its last good start")
        return max(common)

    def begin(self) -> None:
        """Mark on each node that files change: its gate refuses until its mark is removed. Raises
        PreviousVersionError."""
        self._run_on_each_node("begin")

    def restore(self, generation: int) -> None:
        """Put the kept files back on each node. An interruption leaves nodes whose gate refuses. Raises
        PreviousVersionError."""
        self.begin()
        self._run_on_each_node("restore", str(generation))
        self._run_on_each_node("end")

    def _run_on_each_node(self, verb: str, *words: str) -> None:
        for node in self.nodes:
            self._run_on_node(node, verb, *words)

    def _list_kept_versions(self, node: str) -> dict[int, KeptVersion]:
        found = {}
        for line in self._run_on_node(node, "list").splitlines():
            if not (match := _LISTED.fullmatch(line)):
                raise PreviousVersionError(f"{node}: unexpected output {printable_line(line)[:80]}")
            found[int(match[1])] = KeptVersion(int(match[1]), match[2], match[3], match[4])
        return found

    def _run_on_node(self, node: str, verb: str, *words: str) -> str:
        command = join(["sh", "-c", self._script, "serve-previous", verb, self.unit.name, *words])
        try:
            done = self._shells[node].run(command)
        except (OSError, UnreachableError) as error:
            why = getattr(error, "why", None) or getattr(error, "strerror", None) or str(error)
            raise PreviousVersionError(printable_line(scrub(f"{node}: cannot be asked: {why}"))) from None
        if done.rc:
            lines = str(done.stderr).strip().splitlines() or [f"{verb} ended with exit {done.rc}"]
            raise PreviousVersionError(printable_line(scrub(f"{node}: {lines[-1]}")))
        return str(done.stdout)
