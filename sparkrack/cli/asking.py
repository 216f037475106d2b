"""Asking nodes over OpenSSH whether they see the link that the switch sees."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparkrack.fleet import Rack
from sparkrack.proof.machines import ssh_config

_SECONDS = 30


class Nodes:
    """The nodes of a rack that answer. Whoever does not answer at the beginning is not asked again."""

    def __init__(self, rack: Rack, folder: Path, names: Iterable[str]) -> None:
        """`folder`: private, short-lived; holds the ssh configuration and the control sockets."""
        self._config = folder / "ssh_config"
        self._config.write_text(ssh_config(rack, folder))
        asked = list(names)
        with ThreadPoolExecutor(max_workers=16) as pool:
            answers = pool.map(lambda name: self._run(name, "true") is not None, asked)
        self.silent = frozenset(name for name, answered in zip(asked, answers, strict=True) if not answered)

    def __call__(self, node: str, command: str) -> str | None:
        """What a command prints on a node; None for a node that cannot be asked."""
        return None if node in self.silent else self._run(node, command)

    def _run(self, node: str, command: str) -> str | None:
        words = ["ssh", "-F", str(self._config), node, f"sh -c {shlex.quote(command)}"]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None
